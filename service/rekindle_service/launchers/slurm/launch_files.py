"""The files of one launch on the shared file system: the environment of the keepers, and the script for Slurm."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.environment import RUN_DIR
from rekindle.contract.files import atomic_write, write_json
from rekindle_service.config.home import Home
from rekindle_service.jobs.secret_values import stored_values
from rekindle_service.launchers.local import keeper_environment
from rekindle_service.launchers.slurm.batch_job import batch_script, sbatch_options
from rekindle_service.launchers.slurm.queue_listing import job_name
from rekindle_service.store.tables import Job

_OF_THIS_MACHINE = frozenset({"CUDA_VISIBLE_DEVICES", "TMPDIR", "HOSTNAME", "DISPLAY", "XDG_RUNTIME_DIR"})
_OF_SLURM = ("SLURM_", "SBATCH_", "SRUN_", "SQUEUE_", "SALLOC_")


@dataclass(frozen=True, slots=True)
class LaunchFiles:
    """``worker_path``: see ``worker_copy``."""

    home: Home
    worker_path: Path

    def write(self, job: Job, excluded: Collection[str] = ()) -> tuple[list[str], Path]:
        """The options of sbatch and the script for ``job.launch_number``. Raises OSError and MissingVariableError."""
        run_dir = self.home.run_dir(job.id)
        launch = run_dir.launch(job.launch_number)
        launch.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        variables = self.environment(job, os.environ)
        write_json(launch.environment, variables, durable=False)
        script = batch_script(job.spec.python, self.worker_path, run_dir, job.launch_number, os.environ)
        atomic_write(launch.script, script.encode(), durable=False)
        name = job_name(job.id, job.launch_number)
        return sbatch_options(job.spec, name, run_dir, launch, excluded), launch.script

    def environment(self, job: Job, inherited: Mapping[str, str]) -> dict[str, str]:
        """As of a keeper on this machine, without what belongs to it or to a Slurm job that the server runs in."""
        shared = {
            name: value
            for name, value in inherited.items()
            if name not in _OF_THIS_MACHINE and not name.startswith(_OF_SLURM)
        }
        values = stored_values(self.home.run_dir(job.id))
        variables = keeper_environment(job, self.worker_path, (), shared, values)
        del variables["CUDA_VISIBLE_DEVICES"]  # Slurm sets it
        return variables | {RUN_DIR: str(self.home.run_dir(job.id).root)}
