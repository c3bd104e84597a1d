"""Faults at random moments, again and again: ``pytest tests/faults/test_soak.py --soak 100``."""

import random
import re
import signal

import pytest

from e2e.waiting import until
from faults.faulty_run import FaultyRun
from rekindle.contract.journal import RecordType
from rekindle.contract.spec import TargetKind

_STEPS_PER_FAULT = 12
_STEPS_PER_EPOCH = 12


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("ranks", [2, 3])
def test_random_faults_change_nothing_but_the_time_it_takes(prepare, request, ranks):
    faults = request.config.getoption("--soak")
    args = ["--epochs", str(faults * _STEPS_PER_FAULT // _STEPS_PER_EPOCH + 2)]
    spec = {"kind": TargetKind.RECIPE, "target": "ddp", "ranks": ranks, "hang_timeout": 3.0}
    calm = prepare("ddp.py", *args, **spec)
    calm.start()
    assert calm.finish() == "succeeded"
    chance = random.Random(ranks)
    run = prepare("ddp.py", *args, **spec)
    run.start()
    for number in range(faults):
        beyond = step(run) + chance.randint(1, _STEPS_PER_FAULT)
        until(lambda beyond=beyond: trains(run) and step(run) >= beyond, f"fault {number}: beyond step {beyond}", 120)
        strike(run, chance.choice(["kill", "kill", "stop", "agent", "keeper"]), chance.randrange(ranks))
    assert run.finish() == "succeeded", run.story()
    assert digest(run) == digest(calm)
    told = run.classes()
    assert told[-1] == "success"
    assert set(told[:-1]) <= {"signal", "hang", "keeper_lost"}, told


def strike(run: FaultyRun, fault: str, rank: int) -> None:
    match fault:
        case "kill":
            run.signal_rank(rank)
        case "stop":
            run.signal_rank(rank, signal.SIGSTOP)
        case "agent":
            run.kill_agent()
        case "keeper":
            run.kill_keeper()
            run.start()
    ended = len(run.records(RecordType.ATTEMPT_ENDED))
    until(lambda: len(run.records(RecordType.ATTEMPT_ENDED)) > ended or trains(run), "the fault was noticed", 120)


def trains(run: FaultyRun) -> bool:
    """Every rank of the newest attempt runs."""
    running = {record.fields["attempt"] for record in run.records(RecordType.RANKS_RUNNING)}
    ended = {record.fields["attempt"] for record in run.records(RecordType.ATTEMPT_ENDED)}
    return run.attempt in running - ended


def step(run: FaultyRun) -> int:
    status = run.status(0)
    return 0 if status is None else status.step or 0


def digest(run: FaultyRun) -> str:
    return re.findall(r"weights sha256 ([0-9a-f]{64})", run.log(0))[-1]
