"""Draws random numbers, as a script does that has not seeded its generators. Its first attempt fails, in both ranks."""

import os
import random
import sys
import time
from pathlib import Path

import numpy as np

print(f"drawn {random.random()} {np.random.rand()} {np.random.default_rng().random()}", flush=True)
if os.environ["REKINDLE_ATTEMPT"] == "1":
    directory = Path(os.environ["REKINDLE_SNAPSHOT_DIR"])
    (directory / f"drawn-{os.environ['RANK']}").touch()
    while len(list(directory.glob("drawn-*"))) < 2:  # a failure ends the other rank
        time.sleep(0.01)
    sys.exit(1)
