"""Short jobs after each other: how many a second two slots get through, compared with Slurm and task-spooler.

    OMP_NUM_THREADS=1 python tests/bench/short_jobs.py --jobs 100

Each job is one process of Python that sleeps for a tenth of a second. The time is from the start of the first to the
end of the last, as the jobs note them themselves; all are submitted one by one as soon as possible. Slurm is a real
cluster of one node on this machine, which takes root.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from side_by_side import await_end, await_spare, server

sys.path.insert(0, str(Path(__file__).parents[1]))

from slurm.cluster import Cluster, why_no_cluster

SLOTS = 2
SECONDS = 0.1  # that a job takes
PATIENCE = 180.0  # seconds for all jobs
_SCRIPT = """\
import time
began = time.time()
time.sleep({seconds})
with open({log!r}, "a") as log:
    log.write(f"{{began}} {{time.time()}}\\n")
"""


class Jobs:
    """A script, and when its runs have begun and ended."""

    def __init__(self, directory: Path, count: int) -> None:
        self.directory, self.count, self._log = directory, count, directory / "times.log"
        self.code = directory / "code"
        self.code.mkdir(parents=True)
        self.script = self.code / "train.py"
        self.script.write_text(_SCRIPT.format(seconds=SECONDS, log=str(self._log)))
        self.command = [sys.executable, str(self.script)]

    def per_second(self) -> float:
        """Wait for their end."""
        deadline = time.monotonic() + PATIENCE
        while len(times := self._log.read_text().splitlines() if self._log.exists() else []) < self.count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(times)} of {self.count} jobs have ended after {PATIENCE:.0f} s")
            time.sleep(0.05)
        began, ended = zip(*(map(float, line.split()) for line in times), strict=True)
        return self.count / (max(ended) - min(began))

    def forget(self) -> None:
        self._log.unlink()


def rekindle(jobs: Jobs, spares: int = 1) -> float:
    settings = {"OMP_NUM_THREADS": "1", "REKINDLE_SPARE_KEEPERS": str(spares), "REKINDLE_SPARE_MEMORY": "0"}
    body = {"script": "train.py", "code": {"path": str(jobs.code)}, "ranks": 1, "device": "cpu"}
    with server(jobs.directory / "home", SLOTS, **settings) as client:
        await_end(client, client.submit(body)["id"])  # the first has no spare keeper
        jobs.forget()
        if spares:
            await_spare()
        ids = [client.submit(body)["id"] for _ in range(jobs.count)]
        speed = jobs.per_second()
        for each in ids:
            await_end(client, each)
    return speed


def slurm(jobs: Jobs) -> float:
    if why := why_no_cluster():
        raise RuntimeError(why)
    with Cluster(nodes=1, cpus=SLOTS, shared=[jobs.directory]) as cluster:
        for _ in range(jobs.count):
            cluster.sbatch(" ".join(jobs.command))
        return jobs.per_second()


def task_spooler(jobs: Jobs) -> float:
    program = shutil.which("tsp")
    if program is None:
        raise RuntimeError("not installed: tsp (apt-get install task-spooler)")
    own = {**os.environ, "TS_SOCKET": str(jobs.directory / "socket"), "TS_SLOTS": str(SLOTS)}
    try:
        for _ in range(jobs.count):
            subprocess.run([program, "-n", *jobs.command], env=own, check=True, stdout=subprocess.DEVNULL)
        return jobs.per_second()
    finally:
        subprocess.run([program, "-K"], env=own, check=False)


QUEUES: dict[str, Callable[[Jobs], float]] = {"rekindle": rekindle, "Slurm": slurm, "task-spooler": task_spooler}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="short-jobs-") as directory:
        for name, run in QUEUES.items():
            print(f"{name}: {run(Jobs(Path(directory) / name, options.jobs)):.2f} jobs per second", flush=True)


if __name__ == "__main__":
    main()
