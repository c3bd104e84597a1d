"""Jobs on Slurm, by its own commands: sbatch, squeue, scancel, scontrol."""
