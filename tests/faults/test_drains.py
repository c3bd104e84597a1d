"""Asked to leave in the middle of slow steps, with loader workers at work: saved at one common step, nothing lost."""

import random
import signal
import time

import pytest

from e2e.waiting import until
from faults.faulty_run import FaultyRun
from rekindle.contract.files import read_json
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.states import JobIntent

_STEP = 0.15  # seconds that a step of the script takes


def test_a_drained_and_a_terminated_training_continue_with_the_very_next_step(begin):
    run = begin("loaders.py")
    drain_and_come_back(run, [leave_on_request, leave_on_sigterm], random.Random(1))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_many_drains_lose_no_step(begin, request):
    run, chance = begin("loaders.py"), random.Random(2)
    ways = chance.choices([leave_on_request, leave_on_sigterm], k=request.config.getoption("--soak"))
    drain_and_come_back(run, ways, chance)


def test_a_damaged_snapshot_is_skipped_and_the_journal_names_it(begin):
    run, saved = begin("loaders.py"), []
    for number in (1, 2):
        until(lambda number=number: run.attempt == number and trained(run) >= 1, f"attempt {number} trains", 120)
        leave_on_sigterm(run)
        saved.append(common_step(run))
        if number == 1:
            run.start()
    model = run.run_dir.snapshots / f"{saved[1]:012}" / "model.pt"
    model.write_bytes(model.read_bytes()[:-1])
    run.start()
    run.reach_record(RecordType.RESUMED, 2)
    run.want(JobIntent.CANCEL)
    assert run.leave() == 0
    (skipped,) = run.records(RecordType.SNAPSHOT_SKIPPED)
    assert (skipped.attempt, skipped.step) == (3, saved[1])
    assert "model.pt" in skipped.reason
    assert run.records(RecordType.RESUMED)[1].step == saved[0]


def drain_and_come_back(run, ways, chance):
    saved = []
    for number, leave in enumerate(ways, start=1):
        steps = chance.randint(1, 3)
        until(
            lambda number=number, steps=steps: run.attempt == number and trained(run) >= steps,
            f"attempt {number} has trained {steps} steps",
            120,
        )
        time.sleep(chance.uniform(0, _STEP))  # at any moment of a step
        leave(run)
        saved.append(common_step(run))
        run.want(JobIntent.RUN, run=number + 1)
        run.start()
    until(lambda: run.attempt == len(ways) + 1 and trained(run) >= 1, "the last attempt trains", 120)
    run.want(JobIntent.CANCEL, run=len(ways) + 1)
    assert run.leave() == 0
    assert run.classes() == ["preempted"] * len(ways) + ["cancelled"]
    assert [record.step for record in run.records(RecordType.RESUMED)] == saved
    for rank in (0, 1):
        steps = [step for attempt in run.steps(rank) for step in attempt]
        assert steps == list(range(1, len(steps) + 1)), "no step is lost and none is done twice"
    print(f"{len(saved)} drains, each saved at one common step: {saved}")


def leave_on_request(run: FaultyRun) -> None:
    """Drain as `POST /drain` does: the job returns to the queue."""
    run.want(JobIntent.DRAIN, run=run.records(RecordType.KEEPER_STARTED)[-1].run)
    assert run.leave() == 0
    assert run.records(RecordType.JOB_ENDED)[-1].state == "queued"


def leave_on_sigterm(run: FaultyRun) -> None:
    """Drain as a machine that shuts down does: the job is to come back by itself."""
    ended = len(run.records(RecordType.JOB_ENDED))
    run.keeper.send_signal(signal.SIGTERM)
    assert run.leave() == 0
    assert len(run.records(RecordType.JOB_ENDED)) == ended


def trained(run: FaultyRun) -> int:
    """Number of steps that rank 0 has printed in the latest attempt."""
    return len(run.steps(0)[-1]) if run.attempt else 0


def common_step(run: FaultyRun) -> int:
    """Where both ranks say that they have saved and stopped; the snapshot of that step is committed."""
    done = [read_json(run.run_dir.attempt(run.attempt).rank(rank).done) for rank in (0, 1)]
    assert all(one is not None and one["drained"] for one in done), run.all_logs()
    assert done[0]["step"] == done[1]["step"], done
    assert (run.run_dir.snapshots / f"{done[0]['step']:012}" / "manifest.json").exists()
    return done[0]["step"]
