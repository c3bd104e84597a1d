"""Prints far more than a log may take, then waits until it is told to end."""

import os
import sys
import time

LINE = b"a line that is repeated by far too often\n"
for _ in range(40):
    os.write(1, LINE * 25_000)
while not os.path.exists("end"):
    time.sleep(0.05)
print("the end")
sys.exit(0)
