"""Months of use in minutes: short jobs, kills and restarts, and nothing grows.

``pytest tests/e2e/test_soak_short_jobs.py --soak 500`` runs 500 jobs.
"""

import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from e2e.serve_process import ServeProcess
from e2e.waiting import until
from job_examples import names_in
from rekindle.contract.environment import RUN_DIR
from rekindle.contract.locks import lock_holder
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings

_BATCH = 20  # jobs
_WARM_UP = 3  # batches, after which nothing may grow
_RESTART = 4  # batches
_HOW = {"end": 6, "fail": 1, "die": 1, "wait": 2}  # how a job ends, and how often
_ENDED = {"succeeded", "failed", "cancelled"}
_SCRIPT = """
import os, sys, time
from pathlib import Path
from rekindle.contract.run_dir.paths import RunDir
memory = RunDir(Path(os.environ["REKINDLE_RUN_DIR"])).memory
memory.mkdir(mode=0o700)
(memory / "snapshot").write_bytes(bytes(100_000))
os.makedirs("deep/" * 20, exist_ok=True)
os.chmod("deep", 0o500)
print("x" * 10_000)
how = sys.argv[1]
if how == "fail": raise ValueError("planned")
if how == "die": os.kill(os.getpid(), 9)
if how == "wait": time.sleep(600)
"""


class Figures(NamedTuple):
    """What must not grow with the number of jobs."""

    rss_mb: float
    descriptors: int
    threads: int
    processes: int  # of jobs
    runs: int  # entries in the directory of runs
    disk_mb: float
    database_mb: float
    shared_memory: int  # directories of these jobs


def sample(server: psutil.Process, home: Path, jobs: set[str]) -> Figures:
    sizes = [path.lstat().st_blocks * 512 for path in home.rglob("*")]
    return Figures(
        rss_mb=round(server.memory_info().rss / 1e6, 1),
        descriptors=server.num_fds(),
        threads=server.num_threads(),
        processes=len(list(job_processes(home))),
        runs=len(names_in(home / "runs")),
        disk_mb=round(sum(sizes) / 1e6, 1),
        database_mb=round((home / "rekindle.db").stat().st_size / 1e6, 2),
        shared_memory=sum(RunDir(home / "runs" / job).memory.exists() for job in jobs),
    )


def job_processes(home: Path) -> Iterator[int]:
    key = f"{RUN_DIR}={home}".encode()
    for pid in psutil.pids():
        try:
            if any(each.startswith(key) for each in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")):
                yield pid
        except OSError:
            continue


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_short_jobs_kills_and_restarts_leave_nothing_behind(
    home: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(_SCRIPT)
    chance = random.Random(7)
    found: list[Figures] = []
    jobs: set[str] = set()
    batches = max(_WARM_UP + 2, request.config.getoption("--soak") // _BATCH)
    with ServeProcess(home) as server, Client.from_home(Settings(home=home)) as client:
        for number in range(batches):
            jobs |= run_batch(client, home, code, chance)
            if number % _RESTART == _RESTART - 1:
                server.kill() if chance.random() < 0.5 else server.stop()
                server.start()
            until(lambda: len(names_in(home / "runs")) == 0, "the directories of all jobs have gone", 120)
            until(lambda: not list(job_processes(home)), "no process of a job is left", 60)
            client.prune({"keep_events_days": 0}, dry_run=False)
            assert client.disk_usage()["stuck_deletions"] == []
            found.append(sample(psutil.Process(server.pid), home, jobs))
            print(f"{(number + 1) * _BATCH:5d} jobs: {found[-1]}", flush=True)
    check(found)


def run_batch(client: Client, home: Path, code: Path, chance: random.Random) -> set[str]:
    """Submit, disturb, await and delete some jobs; returns their ids."""
    jobs = {submit(client, code, how): how for how in chance.choices(list(_HOW), list(_HOW.values()), k=_BATCH)}
    struck: set[str] = set()

    def all_ended() -> bool:
        states = {job: client.job(job)["state"] for job in jobs}
        for job, how in jobs.items():
            if how == "wait" and states[job] == "running" and job not in struck:
                struck.add(job)
                strike(client, home, job, chance)
        return set(states.values()) <= _ENDED

    until(all_ended, "all jobs of the batch have ended", 600)
    for job in jobs:
        client.delete(job)
    return set(jobs)


def submit(client: Client, code: Path, how: str) -> str:
    body: dict[str, Any] = {
        "name": how,
        "script": "train.py",
        "args": [how],
        "code": {"path": str(code)},
        "device": "cpu",
        "launch": "process",
        "warm": False,
        "max_failures": 1,
    }
    return client.submit(body)["id"]


def strike(client: Client, home: Path, job: str, chance: random.Random) -> None:
    """End a job that waits: on request, with its keeper first killed now and then."""
    keeper = lock_holder(home / "runs" / job / "keeper.lock")
    if keeper is not None and chance.random() < 0.5:
        os.kill(keeper, signal.SIGKILL)
    client.cancel(job)


def check(found: list[Figures]) -> None:
    """Nothing is larger at the end than after the first batches, but for what an allocator keeps."""
    early, late = found[_WARM_UP - 1], found[-1]
    assert late.processes == late.runs == 0
    assert late.descriptors <= early.descriptors + 5, found
    assert late.threads <= early.threads + 3, found
    assert late.rss_mb <= early.rss_mb * 1.15 + 10, found
    assert late.disk_mb <= early.disk_mb + 2, found
    assert late.shared_memory == 0
