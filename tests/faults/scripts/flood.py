"""Prints far more than a log may take, then waits until it is to end."""

import os
import sys
import time
from pathlib import Path

LINE = b"a line that is repeated by far too often\n"
for _ in range(40):
    os.write(1, LINE * 25_000)
while not Path("end").exists():
    time.sleep(0.05)
print("the end")
sys.exit(0)
