"""What copies off the box cost a training: blocks of steps with and without the copier, in turn, in one job.

    python tests/bench/mirror_cost.py [--rounds 10] [--url DIRECTORY]

Two ranks train ResNet-18 with momentum (94 MB a snapshot, one in each block of 20 steps). The copier is stopped
(SIGSTOP) in half of the blocks (runs, stopped, stopped, runs), so that it copies as much as it can in the others and a
machine that slowly changes favours neither. Prints the speed with the mirror by that without, over the rounds of two
blocks, with its 95 % confidence interval, and, since other tenants of a machine make that wide, what the copier took of
the processor time that there was.
"""

import argparse
import math
import os
import signal
import statistics
import tempfile
import time
from pathlib import Path

import psutil
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
        copied, done, used = set(), 0, 0.0
        while client.job(job["id"])["state"] not in ("succeeded", "failed", "cancelled"):
            while (found := len(out.read_text().splitlines())) == done and found < 2 * (options.rounds + 1):
                time.sleep(0.01)
                if found == 0 and client.job(job["id"])["state"] in ("failed", "cancelled"):
                    break
            done = found
            if (pid := switch(lock, runs=done % 4 in (0, 3))) is not None:
                used = sum(psutil.Process(pid).cpu_times()[:2])  # of one copier, which lives as long as the job
            copied |= {each["step"] for each in client.snapshots(job["id"])["items"] if each["mirrored"]}
        switch(lock, runs=True)
        seconds = [float(line) for line in out.read_text().splitlines()][2:]
        pairs = zip(seconds[::2], seconds[1::2], strict=False)
        logs = [math.log(b / a) * (-1) ** i for i, (a, b) in enumerate(pairs, 1)]
        mean, error = statistics.mean(logs), statistics.stdev(logs) / math.sqrt(len(logs))
        low, speed, high = (math.exp(mean + sign * 1.96 * error) for sign in (-1, 0, 1))
        print(f"speed with the mirror {speed:.4f} of without, 95 % confidence {low:.4f} to {high:.4f}")
        print(f"{len(logs)} rounds, {statistics.median(seconds):.2f} s a block, {len(copied)} snapshots copied")
        share = used / (sum(seconds) / 2 * (os.cpu_count() or 1))
        print(f"the copier took {used:.1f} s of processor time, {share:.2%} of that of all cores while it ran")


def switch(lock: Path, *, runs: bool) -> int | None:
    """Returns the pid of the copier, if there is one."""
    pid = lock_holder(lock) if lock.exists() else None
    if pid is not None:
        os.kill(pid, signal.SIGCONT if runs else signal.SIGSTOP)
    return pid


if __name__ == "__main__":
    main()
