"""Twelve jobs on two slots, with the server killed in the middle: the order holds and no slot is given twice."""

from functools import partial
from pathlib import Path

import pytest

from e2e.serve_process import ServeProcess
from e2e.waiting import until
from rekindle.contract.run_dir.journal import RecordType, read_journal
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.states import JobState
from rekindle_service.client import Client
from rekindle_service.config.home import Home
from rekindle_service.config.settings import Settings
from rekindle_service.store import Store

_JOBS = 12
_SCRIPT = "print('done')\n"


@pytest.mark.soak
def test_twelve_jobs_on_two_slots_run_by_priority_then_first_come_with_the_server_killed(
    home: Path, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(_SCRIPT)
    with ServeProcess(home, cpu_slots=2) as server, Client.from_home(Settings(home=home)) as client:
        blocker = client.submit(body(code, ranks=2))["id"]  # holds both slots until all are queued
        priorities = {client.submit(body(code, priority=n % 3))["id"]: n % 3 for n in range(_JOBS)}
        until(lambda: started(home, blocker) and sum(started(home, job) > 0 for job in priorities) >= 5, "5 ran", 120)
        server.kill()
        server.start()
        until(lambda: not list(client.jobs(state="queued")), "every job has started", 240)
        until(lambda: not list(client.jobs(state="running")), "no job runs any more", 60)
        until(lambda: all(client.job(job)["state"] == "succeeded" for job in priorities), "all have succeeded", 60)
    expected = sorted(priorities, key=lambda job: -priorities[job])  # stable: first come within a priority
    starts = sorted(priorities, key=partial(given_slots, Store(Home(home).database)))
    assert [priorities[job] for job in starts] == [priorities[job] for job in expected]
    assert max_overlap([held(home, job) for job in [blocker, *priorities]]) <= 2


def body(code: Path, *, ranks: int = 1, priority: int = 0) -> dict[str, object]:
    return {"script": "train.py", "code": {"path": str(code)}, "ranks": ranks, "priority": priority, "device": "cpu"}


def started(home: Path, job: str) -> float:
    """When its only attempt began, seconds since the epoch; 0 before."""
    records = read_journal(RunDir(home / "runs" / job).journal)
    return next((record.at for record in records if record.type is RecordType.ATTEMPT_STARTED), 0.0)


def given_slots(store: Store, job: str) -> int:
    """When the job got its slots, as a place in the order of all that the server ever wrote down.

    Keepers that are started in the same round need not get ready in this order.
    """
    (event,) = [event for event in store.events(job) if event.to_state == JobState.STARTING]
    return event.id


def held(home: Path, job: str) -> tuple[float, float, int]:
    """From when to when the job held how many slots, by its keeper's own journal; it must have begun only once."""
    records = list(read_journal(RunDir(home / "runs" / job).journal))
    begun = [record for record in records if record.type is RecordType.ATTEMPT_STARTED]
    ended = [record for record in records if record.type is RecordType.JOB_ENDED]
    assert (len(begun), len(ended)) == (1, 1)
    return begun[0].at, ended[0].at, len(begun[0].devices)


def max_overlap(intervals: list[tuple[float, float, int]]) -> int:
    """The most slots held at one time."""
    return max(sum(n for begin, end, n in intervals if begin <= at < end) for at, _, _ in intervals)
