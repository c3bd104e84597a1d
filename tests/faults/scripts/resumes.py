"""Steps without end that know nothing of rekindle; rank 0 saves each one once the file of the argument exists."""

import os
import sys
import time
from pathlib import Path

import torch

FOLDER = Path(os.environ["REKINDLE_SNAPSHOT_DIR"])
SAVED = FOLDER / "checkpoint.pt"


def main() -> None:
    first = int(torch.load(SAVED)["step"]) + 1 if SAVED.exists() else 1
    for step in range(first, 100_000):
        time.sleep(0.05)
        print(f"step {step}", flush=True)
        if os.environ["RANK"] == "0" and Path(sys.argv[1]).exists():
            torch.save({"step": step}, FOLDER / "part")
            (FOLDER / "part").replace(SAVED)


if __name__ == "__main__":
    main()
