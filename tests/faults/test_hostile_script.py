"""A script may write wherever its rank does; nonsense there must not cost more than what it says about itself."""

import subprocess
import sys

import pytest

from e2e.waiting import until
from rekindle.contract.run_dir.control_messages import ControlMessage, MessageType, notify
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.states import JobIntent

_REMOVES_FIFO = """
import os, time
os.unlink(os.environ["REKINDLE_RUN_DIR"] + "/control.fifo")
print("step 1", flush=True)
time.sleep(600)
"""
_FLOOD = """
import os
print("step 1", flush=True)
fifo = os.open(os.environ["REKINDLE_RUN_DIR"] + "/control.fifo", os.O_WRONLY)
while True:
    os.write(fifo, b"x" * 4096)
"""


def test_invalid_messages_and_rank_files_are_ignored(begin):
    run = begin("garbage.py", max_failures=1)
    assert run.finish() == "succeeded", run.all_logs()
    assert run.classes() == ["success"]
    assert "Traceback" not in run.run_dir.keeper_log.read_text()


def test_a_forged_start_message_puts_no_foreign_process_into_the_job(begin):
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as innocent:
        try:
            run = begin("stubborn.py", "wait", ranks=1)
            run.reach_record(RecordType.ATTEMPT_STARTED)
            notify(run.run_dir, ControlMessage(MessageType.RANK_STARTED, attempt=1, rank=0, pid=innocent.pid))
            run.reach_step(1)
            run.reach_record(RecordType.RANKS_RUNNING)
            run.want(JobIntent.CANCEL)
            assert run.finish() == "cancelled"
            running = run.records(RecordType.RANKS_RUNNING)[0].ranks
            assert [rank.pid for rank in running] == [run.pid(0)]
            assert innocent.poll() is None
        finally:
            innocent.kill()


def test_an_unreadable_intent_changes_nothing_until_a_readable_one_comes(begin):
    run = begin("stubborn.py", "wait", ranks=1)
    run.reach_step(1)
    for nonsense in (b"", b"{", b"[]", b'{"want": "dance", "run": 1, "devices": []}'):
        run.run_dir.intent.write_bytes(nonsense)
        notify(run.run_dir, ControlMessage(MessageType.INTENT))
    run.want(JobIntent.CANCEL)
    assert run.finish() == "cancelled"


def test_a_keeper_without_a_readable_spec_or_intent_says_which_file_and_leaves(prepare):
    for name, nonsense in (
        ("spec.json", b"{}"),
        ("spec.json", b"\x00"),
        ("intent.json", b"[1]"),
        ("intent.json", None),
    ):
        run = prepare("stubborn.py", "wait", ranks=1, warm=False)
        if nonsense is None:
            (run.run_dir.root / name).unlink()
        else:
            (run.run_dir.root / name).write_bytes(nonsense)
        run.start()
        assert run.leave() == 1
        assert f"/{name} is not what the server writes there" in run.run_dir.keeper_log.read_text()
        assert "Traceback" not in run.run_dir.keeper_log.read_text()
        assert not run.run_dir.journal.exists()


@pytest.mark.parametrize("source", [_FLOOD, _REMOVES_FIFO], ids=["floods", "removes"])
def test_a_job_that_floods_or_removes_the_control_fifo_can_still_be_cancelled(prepare, source):
    run = prepare("stubborn.py", "wait", ranks=1)
    (run.run_dir.code / "train.py").write_text(source)
    run.start()
    run.reach_step(1)
    run.want(JobIntent.CANCEL)
    until(lambda: run.keeper.poll() is not None or run.want(JobIntent.CANCEL), "the keeper has read the intent", 60)
    assert run.finish() == "cancelled"
