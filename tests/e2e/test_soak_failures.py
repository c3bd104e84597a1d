"""Jobs that fail in every way, kills of the server, and a log whose disk fills: each job ends as it must.

``pytest tests/e2e/test_soak_failures.py --soak 300`` runs 300 jobs.
"""

import random
from collections import Counter
from itertools import cycle, islice
from pathlib import Path

import pytest

from disks import fill, tmpfs
from e2e.serve_process import ServeProcess
from e2e.test_soak_short_jobs import job_processes
from e2e.waiting import until
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings

_SCRIPT = Path(__file__).parent / "scripts" / "fails.py"
_SLOTS, _KILLS, _FILLED = 3, 5, 2
_CLASSES = {
    **dict.fromkeys(("end", "exit 0", "_exit 0", "exec 0"), "success"),
    **dict.fromkeys(("raise", "key", "assert", "recursion", "import", "syntax", "interrupt"), "user_error"),
    **dict.fromkeys(("exit 3", "exit text", "_exit 7", "exec 7", "resave"), "user_error"),
    **dict.fromkeys(("segv", "abort", "bus", "kill", "term"), "signal"),
    **dict.fromkeys(("memory", "chained memory"), "oom"),
    "disk full": "disk_full",
    **dict.fromkeys(("hang", "gil", "stop"), "hang"),
}
"""By what the job does, the class of the outcome with which it ends."""


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_every_job_ends_as_it_must_whatever_happens_to_the_server_and_its_log(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    home, code, log_disk = tmp_path / "home", tmp_path / "code", tmp_path / "log"
    code.mkdir()
    home.mkdir(mode=0o700)
    (code / "train.py").write_text(_SCRIPT.read_text())
    count, chance = max(len(_CLASSES), request.config.getoption("--soak")), random.Random(11)
    ways = list(islice(cycle(_CLASSES), count))
    chance.shuffle(ways)
    with tmpfs(log_disk, "1m"):
        (home / "server.log").symlink_to(log_disk / "server.log")
        with ServeProcess(home, cpu_slots=_SLOTS) as server, Client.from_home(Settings(home=home)) as client:
            jobs = {submit(client, code, way): way for way in ways}
            disturb(server, client, jobs, log_disk)
            until(lambda: not active(client, jobs), "all jobs have ended", 40.0 * count)
            ended = {job: client.job(job) for job in jobs}
            until(lambda: not list(job_processes(home)), "no process of a job is left", 60)
    found = Counter((jobs[job], (each["outcome"] or {}).get("class"), each["state"]) for job, each in ended.items())
    right = {(way, klass, "succeeded" if klass == "success" else "failed") for way, klass in _CLASSES.items()}
    assert {kind: number for kind, number in found.items() if kind not in right} == {}


def submit(client: Client, code: Path, way: str) -> str:
    request = {"script": "train.py", "code": {"path": str(code)}, "args": [way], "device": "cpu", "name": way}
    return client.submit({**request, "max_failures": 2, "hang_timeout": 3})["id"]


def active(client: Client, jobs: dict[str, str]) -> list[str]:
    states = {each["id"]: each["state"] for each in client.jobs(limit=len(jobs))}
    return [job for job in jobs if states[job] not in ("succeeded", "failed", "cancelled")]


def disturb(server: ServeProcess, client: Client, jobs: dict[str, str], log_disk: Path) -> None:
    """Kill the server, and fill the disk of its log, each time that another part of the jobs has ended."""
    events = _KILLS + _FILLED
    for number in range(events):
        due = len(jobs) * (events - number) // (events + 1)
        until(lambda due=due: len(active(client, jobs)) <= due, f"no more than {due} jobs are active", 40.0 * len(jobs))
        if number % 3 == 1:
            fill(log_disk)
        else:
            server.kill()
            (log_disk / "ballast").unlink(missing_ok=True)
            server.start()
