"""Faults at random moments, again and again: ``pytest tests/e2e/test_soak.py --soak 100``."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.serve_process import ServeProcess
from e2e.served_job import ServedJob
from e2e.waiting import until
from rekindle.contract.run_dir.journal import RecordType
from rekindle_service.client import Client

_STEPS_PER_EPOCH = 12
_INTERVAL = 10  # steps between two snapshots
_WRITING = 5  # steps that may pass while one is written meanwhile: a kill meanwhile costs it, too
_FOR_EVER = 3600.0  # seconds
_FAULTS = ["rank", "rank", "stop", "agent", "keeper", "server"]


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("ranks", [2, 3])
def test_random_faults_change_nothing_but_the_time_it_takes(
    server: ServeProcess, client: Client, home: Path, request: pytest.FixtureRequest, ranks: int
) -> None:
    faults = request.config.getoption("--soak")
    epochs = 4 * faults * _INTERVAL // _STEPS_PER_EPOCH
    body: dict[str, Any] = {
        "recipe": "ddp",
        "args": ["--epochs", str(epochs)],
        "ranks": ranks,
        "device": "cpu",
        "hang_timeout": 3.0,
        "snapshot": {"every_steps": _INTERVAL},
    }
    calm = ServedJob(client, home, body)
    assert calm.finish(_FOR_EVER) == "succeeded"
    chance = random.Random(ranks)
    job = ServedJob(client, home, {**body, "args": [*body["args"], "--throttle", "0.03"]})
    for _ in range(faults):
        begun = until(job.step, "the latest attempt has reported its step", 120)
        job.reach(attempt=job.attempt(), beyond=begun + chance.randint(_INTERVAL, 2 * _INTERVAL))
        strike(job, server, chance.choice(_FAULTS), chance.randrange(ranks))
    assert job.finish(_FOR_EVER) == "succeeded"
    assert job.weights() == calm.weights()
    assert [record.state for record in job.records(RecordType.JOB_ENDED)] == ["succeeded"]
    classes = [attempt["outcome"]["class"] for attempt in client.attempts(job.id)]
    assert classes[-1] == "success"
    assert set(classes[:-1]) <= {"signal", "hang", "keeper_lost"}, classes
    repeated = list(repeated_steps(job))
    print(f"{ranks} ranks: {faults} faults, {len(classes)} attempts, at most {max(repeated)} steps repeated")
    assert max(repeated) <= _INTERVAL + _WRITING, repeated


def strike(job: ServedJob, server: ServeProcess, fault: str, rank: int) -> None:
    """Do it, and wait until it was noticed and nothing is left over."""
    attempt = job.attempt()
    match fault:
        case "rank":
            job.kill_rank(rank)
        case "stop":
            job.stop_rank(rank)
        case "agent":
            job.kill_agent()
        case "keeper":
            job.kill_keeper()
        case "server":
            server.kill()
            server.start()
    if fault != "server":
        until(lambda: job.attempt() > attempt, f"{fault} of attempt {attempt} was noticed", 120)
    until(lambda: not job.orphans(), f"no orphan is left after {fault}", 5)


def repeated_steps(job: ServedJob) -> Iterator[int]:
    """For each attempt that another followed, the steps that were trained once more."""
    ends = {record.attempt: record for record in job.records(RecordType.ATTEMPT_ENDED)}
    for resumed in job.records(RecordType.RESUMED):
        before = ends[resumed.attempt - 1]
        yield max((before.last_step or 0) - resumed.step, 0)
