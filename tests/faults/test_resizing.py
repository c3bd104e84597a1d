"""Other devices while an attempt runs: it stops at a step boundary, and the next one runs on these."""

from faults.faulty_run import FaultyRun
from rekindle.contract.files import write_json
from rekindle.contract.job import RunIntent
from rekindle.contract.run_dir.control_messages import ControlMessage, MessageType, notify
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.states import JobIntent


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
    """Give the job other slots, as the server does."""
    intent = RunIntent(want, 1, [f"cpu:{index}" for index in range(slots)], reason=reason)
    write_json(run.run_dir.intent, intent.to_json())
    notify(run.run_dir, ControlMessage(MessageType.INTENT))
