"""What a training script uses: a run that stops and goes on exactly, and its parts, each usable alone."""
