"""Other devices while an attempt runs: it stops at a step boundary, and the next one runs on these."""

import json
from collections import Counter

from faults.faulty_run import FaultyRun
from rekindle.contract.files import write_json
from rekindle.contract.job import RunIntent
from rekindle.contract.run_dir.control import ControlMessage, MessageType, notify
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.states import JobIntent

_STEPS = 20


def test_a_training_continues_on_more_and_on_fewer_ranks_with_the_very_next_step_and_the_same_bits(begin):
    alone = begin("resized.py", str(_STEPS), "0", ranks=1)
    run = begin("resized.py", str(_STEPS), "0.05", ranks=1)
    run.reach_step(3)
    give(run, 3, "3 slots are free.")
    run.reach_step(1, attempt=2)
    give(run, 2, "Job #7 gets a slot.")
    assert (run.finish(), alone.finish()) == ("succeeded", "succeeded")
    assert run.classes() == ["preempted", "preempted", "success"]
    assert run.outcomes()[0]["message"] == "Saved and stopped to continue on more devices. 3 slots are free."
    assert run.outcomes()[1]["message"] == "Saved and stopped to continue on other devices. Job #7 gets a slot."
    assert [record.world_size for record in run.records(RecordType.ATTEMPT_STARTED)] == [1, 3, 2]
    assert [record.delay for record in run.records(RecordType.RETRY_DECIDED)] == [0.0, 0.0]
    steps = [step for attempt in run.steps(0) for step in attempt]
    assert steps == list(range(1, 2 * _STEPS + 1)), "no step is lost and none is done twice"
    assert samples(run) == {epoch: Counter(range(_STEPS * 8)) for epoch in (0, 1)}
    assert run.weights() == alone.weights()


def test_a_script_without_rekindle_gets_more_ranks_only_once_it_has_saved_and_fewer_at_once(begin, tmp_path):
    gate = tmp_path / "gate"
    run = begin("resumes.py", str(gate), ranks=1)
    run.reach_step(1)
    for slots, records in ((2, 1), (1, 2), (2, 3)):  # the slot is offered, withdrawn before it was used, and offered
        give(run, slots, "A slot is free.")
        run.reach_record(RecordType.DEVICES_HELD, records)
    held = [record.devices for record in run.records(RecordType.DEVICES_HELD)]
    assert held == [["cpu:0", "cpu:1"], ["cpu:0"], ["cpu:0", "cpu:1"]]
    run.reach_step(len(run.steps(0)[0]) + 5)
    assert run.attempt == 1
    gate.touch()  # it saves from now on
    run.reach_step(1, attempt=2)
    (saved, *_), (first, *_) = run.records(RecordType.STOP_REQUESTED), run.steps(0)[1]
    assert (saved.ending, first > 1) == ("grow", True)
    give(run, 1, "Job #7 gets a slot.")
    run.reach_step(1, attempt=3)
    assert [record.ending for record in run.records(RecordType.STOP_REQUESTED)] == ["grow", "resize"]
    give(run, 2, "A slot is free.", JobIntent.CANCEL)
    assert run.finish() == "cancelled"
    assert run.classes() == ["preempted", "preempted", "cancelled"]


def give(run: FaultyRun, slots: int, reason: str, want: JobIntent = JobIntent.RUN) -> None:
    """As the server does that gives the job other slots."""
    intent = RunIntent(want, 1, [f"cpu:{index}" for index in range(slots)], reason=reason)
    write_json(run.run_dir.intent, intent.to_json())
    notify(run.run_dir, ControlMessage(MessageType.INTENT))


def samples(run: FaultyRun) -> dict[int, Counter[int]]:
    """Ids of the samples by epoch, as often as they were trained."""
    used: dict[int, Counter[int]] = {}
    for line in (run.run_dir.snapshots / "samples.jsonl").read_text().splitlines():
        _, epoch, _, ids = json.loads(line)
        used.setdefault(epoch, Counter()).update(ids)
    return used
