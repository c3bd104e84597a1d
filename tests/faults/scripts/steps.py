"""Reports and prints 60 steps without saving anything, and writes its progress to a file whose path is its argument."""

import sys
import time
from pathlib import Path

import rekindle

STEPS = 60


def main():
    for step in range(1, STEPS + 1):
        rekindle.report(step=step, steps=STEPS)
        print(f"step {step}\n{'.' * 1000}", flush=True)
        Path(sys.argv[1]).write_text(str(step))
        time.sleep(0.1)


if __name__ == "__main__":
    main()
