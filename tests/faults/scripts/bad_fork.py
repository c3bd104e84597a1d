"""Each rank prints whether it can use CUDA; all fail in the first attempt, so that a second one is forked."""

import os
import time
from pathlib import Path

import torch

print("bad fork" if torch.cuda._is_in_bad_fork() else "good fork", flush=True)
torch.cuda.is_available()  # as modules do when they are imported: this rank asks, and not its parent
if os.environ["REKINDLE_ATTEMPT"] == "1":
    folder = Path(os.environ["REKINDLE_SNAPSHOT_DIR"])
    (folder / f"printed-{os.environ['RANK']}").touch()
    while len(list(folder.glob("printed-*"))) < int(os.environ["WORLD_SIZE"]):
        time.sleep(0.01)
    raise ValueError("planted")
