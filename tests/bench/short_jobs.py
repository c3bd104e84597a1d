"""Short jobs after each other: how many the slots get through in a second, and what they lose between two of them.

    OMP_NUM_THREADS=1 python tests/bench/short_jobs.py --jobs 100

Each job is one process that sleeps for a tenth of a second; there are two slots. The time is that from the first
start to the last end; the queue is full before.
"""

import argparse
import tempfile
from datetime import datetime
from pathlib import Path

from first_step import await_spare
from side_by_side import await_end, server

from rekindle_service.client import Client

SLOTS = 2
SECONDS = 0.1  # that a job takes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100)
    parser.add_argument("--spares", type=int, default=1, help="spare keepers; 0: every job starts cold")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="short-jobs-") as name:
        directory = Path(name)
        (directory / "code").mkdir()
        (directory / "code" / "train.py").write_text(f"import time\ntime.sleep({SECONDS})\n")
        settings = {"OMP_NUM_THREADS": "1", "REKINDLE_SPARE_KEEPERS": str(options.spares), "REKINDLE_SPARE_MEMORY": "0"}
        with server(directory / "home", SLOTS, **settings) as client:
            run(client, directory / "code", options.jobs, bool(options.spares))


def run(client: Client, code: Path, count: int, has_spare: bool) -> None:
    await_end(client, *submit(client, code, 1))  # the first has none
    if has_spare:
        await_spare()
    jobs = submit(client, code, count)
    for job in jobs:
        await_end(client, job)
    ended = [client.job(job) for job in jobs]
    began, end = min(job["started_at"] for job in ended), max(job["ended_at"] for job in ended)
    seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(began)).total_seconds()
    print(f"{count} jobs of {SECONDS} s on {SLOTS} slots: {seconds:.1f} s, {count / seconds:.2f} jobs per second")
    print(f"lost per job: {SLOTS * seconds / count - SECONDS:.2f} s of its slot")


def submit(client: Client, code: Path, count: int) -> list[str]:
    body = {"script": "train.py", "code": {"path": str(code)}, "ranks": 1, "device": "cpu"}
    return [client.submit(body)["id"] for _ in range(count)]


if __name__ == "__main__":
    main()
