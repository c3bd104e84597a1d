"""Takes snapshots as fast as the disk lets it, in a new child for each line on standard input.

    saver.py DIRECTORY

A child says ``begun``, ``durable <step>`` for each snapshot, and ``ended`` is said when it is no more. It continues
from the latest snapshot, and ends with the first that is not saved.
"""

import os
import sys
from pathlib import Path

import torch

from rekindle import Snapshots


def report(line: str) -> None:
    """In one write: the child and its parent never mix their lines."""
    os.write(1, f"{line}\n".encode())


def weight(step: int) -> torch.Tensor:
    return torch.full((50_000,), float(step))


def save_on_and_on(directory: Path) -> None:
    report("begun")
    snapshots = Snapshots(directory, keep_last=2)
    restored = snapshots.restore()
    step = 0 if restored is None else restored.step
    saved = True
    while saved:
        step += 1
        saved = snapshots.save(step, 0, {"model": {"weight": weight(step)}}, {"step": step}).saved
        if saved:
            report(f"durable {step}")


def main() -> None:
    directory = Path(sys.argv[1])
    for _ in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                save_on_and_on(directory)
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        report("ended")


if __name__ == "__main__":
    main()
