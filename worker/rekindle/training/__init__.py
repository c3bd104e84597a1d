"""What a training script uses: a run that stops and resumes exactly, and its parts, each usable alone."""
