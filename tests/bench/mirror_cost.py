"""What copies off the box cost a training: blocks of steps with and without the copier, in turn, in one job.

    python tests/bench/mirror_cost.py [--rounds 10] [--url DIRECTORY]

Two ranks train ResNet-18 with momentum (94 MB a snapshot, one in each block of 20 steps). The copier is stopped
(SIGSTOP) in every other block, so that it copies as much as it can in the others. Prints the median over the rounds of
the speed with the mirror by that without, and how much was copied.
"""

import argparse
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

from side_by_side import server

from rekindle.contract.locks import lock_holder

SCRIPT = Path(__file__).parent / "scripts" / "mirror_steps.py"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--block", type=int, default=20, help="steps of a block, with one snapshot")
    parser.add_argument("--url")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mirror-cost-") as directory, server(Path(directory) / "home") as client:
        place = Path(options.url or Path(directory) / "off")
        place.mkdir(exist_ok=True)
        out = Path(directory) / "blocks"
        out.touch()
        body = {"script": SCRIPT.name, "code": {"path": str(SCRIPT.parent)}, "device": "cpu", "ranks": 2}
        args = [str(2 * (options.rounds + 1)), str(options.block), str(out)]
        job = client.submit({**body, "args": args, "mirror": str(place), "mirror_keep": 1})
        lock = Path(directory) / "home" / "mirrors" / f"{job['id']}.lock"
        copied, done = set(), 0
        while client.job(job["id"])["state"] not in ("succeeded", "failed", "cancelled"):
            while (found := len(out.read_text().splitlines())) == done and found < 2 * (options.rounds + 1):
                time.sleep(0.01)
                if found == 0 and client.job(job["id"])["state"] in ("failed", "cancelled"):
                    break
            done = found
            switch(lock, runs=done % 2 == 0)
            copied |= {each["step"] for each in client.snapshots(job["id"])["items"] if each["mirrored"]}
        switch(lock, runs=True)
        seconds = [float(line) for line in out.read_text().splitlines()][2:]
        ratios = [off / on for on, off in zip(seconds[::2], seconds[1::2], strict=False)]
        print(
            f"speed with the mirror {statistics.median(ratios):.3f} of without, {min(ratios):.3f} to {max(ratios):.3f}"
        )
        print(f"{len(ratios)} rounds, {statistics.median(seconds):.2f} s a block, {len(copied)} snapshots copied")


def switch(lock: Path, *, runs: bool) -> None:
    pid = lock_holder(lock) if lock.exists() else None
    if pid is not None:
        os.kill(pid, signal.SIGCONT if runs else signal.SIGSTOP)


if __name__ == "__main__":
    main()
