"""Draws random numbers, as a script does that has not seeded its generators. Its first attempt fails."""

import os
import random
import sys

import numpy as np

print(f"drawn {random.random()} {np.random.rand()} {np.random.default_rng().random()}", flush=True)
if os.environ["REKINDLE_ATTEMPT"] == "1":
    sys.exit(1)
