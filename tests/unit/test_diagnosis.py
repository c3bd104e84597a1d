"""Planted failures and their diagnosis. No failure is attributed to a rank that only followed another."""

import mmap
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from rekindle.contract.job_options import LaunchMode
from rekindle.contract.outcome import OutcomeClass
from rekindle.contract.run_dir.rank_records import RankError
from rekindle.keeper.attempt_result import AttemptResult, Crash, Culprit, Ending, Hang, RankResult
from rekindle.keeper.diagnosis import diagnose, ended_by_sigterm, has_timed_out, root_cause, signal_name
from rekindle.keeper.error_kinds import watchdog_report

RESET = ("RuntimeError", "[../gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1")
BUG = ("ValueError", "boom\nmore")
FULL = ("OSError", "[Errno 28] No space left on device: 'x'")
REFUSED = ("ConnectionError", "HTTPConnectionPool(host='data', port=80): [Errno 111] Connection refused")
NCCL = ("DistBackendError", "NCCL error in: ProcessGroupNCCL.cpp: remote process exited or there was a network error")


def rank(number, *, code=None, by=None, stopped=False, raised=None, at=1.0, **fields):
    error = None
    if raised is not None:
        kind, message = raised
        place = ("train.py", 7) if kind != "SystemExit" else ("train.py", 9)
        status = 3 if kind == "SystemExit" else None
        error = RankError(number, kind, message, *place, "Traceback …", status, 0.0, at)
    ended = {"exit_code": code, "signal": by, "stopped_by_torchrun": stopped, **fields}
    return RankResult(number, 100 + number, 1, error=error, **ended)


def result(*ranks, ending=Ending.RANK_FAILED, world=2, **more):
    return AttemptResult(1, world, ending, ranks={each.rank: each for each in ranks}, **more)


ECC = ("AcceleratorError", "CUDA error: uncorrectable ECC error encountered\nmore")
IDLE = "Expected to have finished reduction in the prior iteration before starting a new one. \nmore for rank 0: 2 3"
UNSTORED = ("ResultNotStoredError", "the result is not stored: x")
LEFT = Culprit(1, "rank 1 had finished", "train.py", 5)
STOPPED = rank(0, ended_at=1.0, by=15, stopped=True)
KILLED_BY_US = rank(1, ended_at=9.0, by=9, killed=True)


@pytest.mark.parametrize(
    ("facts", "klass", "cause", "message"),
    [
        (result(rank(0, ended_at=1.0, by=9), KILLED_BY_US), "signal", 0, "Rank 0 was killed by SIGKILL."),
        (result(rank(0, ended_at=1.0, by=11), KILLED_BY_US), "signal", 0, "Rank 0 was killed by SIGSEGV."),
        (result(rank(0, ended_at=1.0, by=9, oom="oom-kill"), KILLED_BY_US), "oom", 0, "out-of-memory killer"),
        (result(rank(0, ended_at=1.0, by=11, crash=Crash("Fatal …", "train.py", 41)), KILLED_BY_US), "signal", 0,
         "Rank 0 was killed by SIGSEGV at train.py:41."),
        (result(rank(0, ended_at=1.0, by=24), KILLED_BY_US), "signal", 0,
         "Rank 0 was killed by SIGXCPU, since it had used up its limit of processor time (RLIMIT_CPU"),
        (result(rank(0, ended_at=1.0, by=9, signal_reason="it had used up its limit of processor time, 60 s")),
         "signal", 0, "SIGKILL, since it had used up its limit of processor time, 60 s (RLIMIT_CPU"),
        (result(rank(0, ended_at=1.0, by=6, crash=Crash("Fatal …")), KILLED_BY_US), "signal", 0, "by SIGABRT."),
        (result(rank(0, ended_at=1.0, code=17), KILLED_BY_US), "user_error", 0, "ended with exit code 17"),
        (result(rank(0, ended_at=1.0), KILLED_BY_US), "user_error", 0, "an unknown exit code"),
        (result(rank(0, ended_at=1.0, code=1), KILLED_BY_US, disk_full=True), "disk_full", 0, "could not record why"),
        (result(rank(0, raised=BUG), KILLED_BY_US, disk_full=True), "user_error", 0, "ValueError"),
        (result(rank(0), ending=Ending.LAUNCH_STALLED, agent_signal=9), "launch_error", None, "first of them is rank"),
        (result(rank(0), rank(1), ending=Ending.LAUNCH_STALLED), "launch_error", None, "some of 2 ranks had not"),
        (result(rank(0, raised=BUG), KILLED_BY_US), "user_error", 0,
         "Rank 0 raised ValueError at train.py:7: boom"),
        (result(rank(0, raised=("SystemExit", "3")), KILLED_BY_US), "user_error", 0,
         "Rank 0 exited with code 3 at train.py:9; the end of its output may show why."),
        (result(rank(0, raised=("AssertionError", "")), KILLED_BY_US), "user_error", 0,
         "Rank 0 raised AssertionError at train.py:7."),
        (result(rank(0, raised=("OutOfMemoryError", "CUDA out of memory.")), KILLED_BY_US), "oom", 0, "OutOfMemory"),
        (result(rank(0, raised=("MemoryError", "")), KILLED_BY_US), "oom", 0, "MemoryError"),
        (result(rank(0, raised=("RuntimeError", "CUDA error: out of memory")), KILLED_BY_US), "oom", 0, "CUDA error"),
        (result(rank(0, raised=FULL), KILLED_BY_US), "disk_full", 0, "[Errno 28]"),
        (result(rank(0, raised=UNSTORED), KILLED_BY_US), "disk_full", 0, "the result is not stored"),
        # the first failure by time is the cause, whichever was noticed first
        (result(rank(0, raised=("KeyError", "late"), at=4.0), rank(1, raised=BUG, at=3.9)), "user_error", 1, "boom"),
        (result(rank(0, ended_at=3.0, by=9), rank(1, raised=("ValueError", "x"), at=3.1)), "signal", 0, "SIGKILL"),
        (result(rank(0, raised=("A", "x"), at=3.0), rank(1, raised=("B", "y"), at=3.0)), "user_error", 0, "raised A"),
        # cascades, even where they were noticed first
        (result(rank(0, raised=RESET, at=1.0), rank(1, ended_at=2.0, by=9)), "signal", 1, "Rank 1 was"),
        (result(rank(0, raised=NCCL, at=1.0), rank(1, raised=BUG, at=2.0)), "user_error", 1, "ValueError"),
        (result(STOPPED, rank(1, ended_at=2.0, code=1)), "user_error", 1, "exit code 1"),
        (result(rank(0, raised=RESET, at=1.0), rank(1, raised=REFUSED, at=2.0)), "user_error", 1, "Connection refused"),
        # nothing but cascades: the first of them stands for the unknown cause
        (result(rank(0, raised=RESET, at=2.0), rank(1, raised=RESET, at=1.0)), "comm", 1, "rank 1 was the first"),
        (result(rank(0, raised=NCCL), KILLED_BY_US), "comm", 0, "lost their connection to each other"),
        # the rank that left is the cause
        (result(rank(0, raised=RESET), rank(1, done=True), missing_peer=LEFT), "user_error", 1, "rank 1 had finished"),
        (result(rank(0, ended_at=1.0, by=6), KILLED_BY_US, missing_peer=LEFT), "user_error", 1, "do not match"),
        # GPUs and NCCL
        (result(rank(0, raised=ECC), rank(1, raised=NCCL, at=0.5)), "comm", 0, "hardware error of the GPU"),
        (result(rank(0, raised=("AcceleratorError", "CUDA error: device-side assert triggered"))), "user_error", 0,
         "CUDA_LAUNCH_BLOCKING=1"),
        (result(rank(0, raised=("RuntimeError", "No CUDA GPUs are available"))), "user_error", 0, "--device cuda"),
        (result(rank(0, raised=("ValueError", "ProcessGroupNCCL is only supported with GPUs, no GPUs found!"))),
         "user_error", 0, "--device cuda"),
        (result(rank(0, raised=("DistBackendError", "NCCL error: ncclSystemError: System call failed"))), "comm", 0,
         "NCCL_DEBUG=WARN"),
        (result(rank(0, raised=("DistBackendError", "NCCL error: ncclInvalidUsage: Duplicate GPU detected"))),
         "user_error", 0, "set_device"),
        (result(rank(0, ended_at=1.0, by=15), rank(1, ended_at=1.5, by=15, stopped=True)), "signal", 0, "SIGTERM"),
        (result(STOPPED, rank(1, ended_at=0.5, by=15, stopped=True), agent_log_tail="Received 15 …"), "signal", None,
         "torchrun stopped its ranks by SIGTERM though none had failed"),
        (result(rank(0, ended_at=1.0, by=6, done=True), rank(1, ended_at=2.0, by=15, stopped=True)), "signal", None,
         "a rank crashed after it was done"),
        # a rank that is done is not the cause of what comes after
        (result(rank(0, ended_at=1.0, by=6, done=True), rank(1, ended_at=2.0, code=1)), "user_error", 1, "exit code 1"),
        # somebody else killed torchrun: its ranks die with it and none is the cause
        (result(rank(0, ended_at=1.0, by=9), rank(1, ended_at=1.0, by=9), agent_signal=9), "signal", None,
         "The torchrun agent was killed by SIGKILL"),
        # torchrun did not reach the script
        (result(ending=Ending.AGENT_ENDED, agent_exit_code=1), "launch_error", None, "after 0 of 2 ranks"),
        (result(STOPPED, ending=Ending.AGENT_ENDED, agent_exit_code=1), "launch_error", None, "after 1 of 2 ranks"),
        (result(rank(0, raised=("ValueError", "x")), ending=Ending.AGENT_ENDED), "user_error", 0, "ValueError"),
        (result(ending=Ending.AGENT_ENDED, agent_exit_code=1, launch=LaunchMode.PROCESS), "launch_error", None,
         "The agent ended with exit code 1 after 0 of 2 ranks"),
        (result(ending=Ending.AGENT_ENDED, agent_signal=9, launch=LaunchMode.PROCESS), "signal", None,
         "The agent was killed by SIGKILL, and its ranks with it."),
        # endings on request
        (result(rank(0, done=True), rank(1, done=True), ending=Ending.DONE), "success", None, "Every rank finished."),
        (result(rank(0, done=True), rank(1, ended_at=1.0, code=0), ending=Ending.DONE), "success", None,
         "rank 1 ended with exit code 0 before the end of the script (by os._exit or exec)"),
        (result(rank(0), rank(1), ending=Ending.CANCEL), "cancelled", None, "Stopped on request."),
        (result(rank(0), rank(1), ending=Ending.TIME_LIMIT), "cancelled", None, "time limit"),
        (result(rank(0), rank(1), ending=Ending.DRAIN), "preempted", None, "did not report that it saved"),
    ],
)  # fmt: skip
def test_a_failure_is_attributed_to(facts, klass, cause, message):
    outcome = diagnose(facts)
    assert (outcome.klass, outcome.rank) == (klass, cause)
    assert message in outcome.message
    assert cause not in outcome.evidence.get("cascades", []) or klass in ("comm", "signal")


@pytest.mark.parametrize("first", ["MemoryError", "torch.OutOfMemoryError: CUDA out of memory."])
def test_an_exception_that_is_raised_while_memory_has_run_out_is_an_oom(first):
    text = (
        f"Traceback …\n{first}\n\nDuring handling of the above exception, another exception occurred:\n\nTraceback …\n"
    )
    error = RankError(0, "RuntimeError", "no step", "train.py", 7, text + "RuntimeError: no step\n", None, 0.0, 1.0)
    assert diagnose(result(RankResult(0, 100, 1, error=error), KILLED_BY_US)).klass is OutcomeClass.OOM
    other = replace(error, traceback=text.replace(first, "KeyError: 'MemoryError'"))
    assert diagnose(result(RankResult(0, 100, 1, error=other), KILLED_BY_US)).klass is OutcomeClass.USER_ERROR


@pytest.mark.parametrize("ending", [Ending.DRAIN, Ending.DONE])
def test_ranks_that_saved_and_stopped_are_preempted_not_finished(ending):
    saved = rank(0, done=True)
    saved.drained = True
    outcome = diagnose(result(saved, rank(1, done=True), ending=ending))
    assert (outcome.klass, outcome.message) == (OutcomeClass.PREEMPTED, "Saved and stopped on request.")


def test_a_stop_whose_last_snapshot_could_not_be_written_is_not_reported_as_saved():
    saved = rank(0, done=True)
    saved.drained = True
    facts = result(saved, ending=Ending.DRAIN, world=1, last_step=40, snapshot_step=30, commits_snapshots=True)
    expected = "Stopped on request; the snapshot of step 40 could not be written: the latest is of step 30."
    assert diagnose(facts).message == expected
    facts.snapshot_step = None
    assert diagnose(facts).message.endswith("could not be written: there is none.")
    facts.snapshot_step = 40
    assert diagnose(facts).message == "Saved and stopped on request."


@pytest.mark.parametrize(
    ("ending", "klass", "why"),
    [
        (Ending.DRAIN, OutcomeClass.PREEMPTED, "on request"),
        (Ending.SHUTDOWN, OutcomeClass.PREEMPTED, "as at a shutdown of the machine"),
        (Ending.CANCEL, OutcomeClass.CANCELLED, "on request"),
        (Ending.TIME_LIMIT, OutcomeClass.CANCELLED, "at the job's time limit"),
    ],
)
def test_exit_code_0_after_a_stop_is_no_success(ending, klass, why):
    outcome = diagnose(result(rank(0, done=True), rank(1, done=True), ending=ending))
    assert (outcome.klass, outcome.retryable) == (klass, klass is OutcomeClass.PREEMPTED)
    assert f"{why}: every rank exited with code 0 after SIGTERM" in outcome.message
    assert "exited with code 0" not in diagnose(result(rank(0, done=True), rank(1, by=9), ending=ending)).message


@pytest.mark.parametrize(
    ("ranks", "expected"),
    [
        ([rank(0, ended_at=1.0, by=15), rank(1, ended_at=1.1)], True),  # how rank 1 ended becomes known a moment later
        ([rank(0, ended_at=1.0, by=15), rank(1, raised=RESET)], True),
        ([rank(0, ended_at=1.0, by=15), rank(1, ended_at=1.1, by=11)], False),
        ([rank(0, ended_at=1.0, by=15), rank(1, raised=BUG)], False),
        ([rank(0, ended_at=1.0), rank(1)], False),
        ([rank(0), rank(1)], True),
    ],
)
def test_ranks_ended_by_sigterm_alone_while_the_end_of_another_is_not_known_yet(ranks, expected):
    assert ended_by_sigterm(ranks) is expected


def test_what_no_retry_can_cure_is_not_retryable():
    certain = ("SyntaxError", "IndentationError", "ImportError", "ModuleNotFoundError", "ScriptMissingError")
    assert [name for name in certain if diagnose(result(rank(0, raised=(name, "x")))).retryable] == []
    assert diagnose(result(rank(0, raised=("ValueError", "x")))).retryable
    assert diagnose(result(rank(0, raised=UNSTORED))).retryable


@pytest.mark.parametrize(
    ("message", "saved", "retryable"),
    [(IDLE, None, False), (IDLE, False, False), (IDLE, True, True), ("boom", None, True)],
)
def test_parameters_without_a_gradient_are_certain_to_fail_again_unless_something_was_saved(message, saved, retryable):
    failed = result(rank(0, raised=("RuntimeError", message)), own_checkpoint_saved=saved)
    assert diagnose(failed).retryable is retryable


@pytest.mark.parametrize(
    ("code", "traceback", "retryable"),
    [
        (2, 'File "/usr/lib/python3.11/argparse.py", line 2630, in exit\n    _sys.exit(status)', False),
        (2, 'File "/job/code/train.py", line 3, in exit\n    sys.exit(2)', True),
        (1, 'File "/usr/lib/python3.11/argparse.py", line 2630, in exit\n    _sys.exit(status)', True),
    ],
)
def test_arguments_that_argparse_rejects_are_rejected_every_time(code, traceback, retryable):
    rejected = rank(0)
    rejected.error = RankError(0, "SystemExit", str(code), "train.py", 9, traceback, code, 0.0, 1.0)
    assert diagnose(result(rejected)).retryable is retryable


def test_a_hang_names_who_and_where():
    hang = Hang(41.7, Culprit(1, "rank 1 is stopped", "train.py", 5), {"stacks": {}})
    outcome = diagnose(result(rank(0), rank(1), ending=Ending.HANG, hang=hang))
    assert (outcome.klass, outcome.rank, outcome.file, outcome.line) == (OutcomeClass.HANG, 1, "train.py", 5)
    assert outcome.message == "No progress for 42 s: rank 1 is stopped."


def test_the_evidence_names_the_cascades_the_log_of_torchrun_and_the_gpu_of_a_hardware_error():
    outcome = diagnose(result(rank(0, raised=RESET), rank(1, ended_at=0.5, by=9), rank(2, raised=NCCL), world=3))
    assert outcome.evidence["cascades"] == [0, 2]
    outcome = diagnose(result(ending=Ending.AGENT_ENDED, agent_log_tail="no such option"))
    assert outcome.evidence["agent_log"] == "no such option"
    gpus = ["GPU-a", "GPU-b"]
    outcome = diagnose(result(rank(0), rank(1, raised=ECC), gpus=gpus))
    assert outcome.evidence["hardware"] == "GPU GPU-b: CUDA error: uncorrectable ECC error encountered"
    asserted = ("AcceleratorError", "CUDA error: device-side assert triggered")
    assert "hardware" not in diagnose(result(rank(1, raised=asserted), gpus=gpus)).evidence


def test_ranks_that_still_run_or_were_killed_by_us_are_no_root_cause():
    assert root_cause([rank(0), KILLED_BY_US]) is None


def test_signals_have_their_usual_names():
    assert [signal_name(number) for number in (signal.SIGKILL, 9999, 0, None)] == [
        "SIGKILL", "signal 9999", "signal 0", "signal None",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "is_hardware"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", True),
        ("NVRM: Xid (PCI:0000:3b:00): 48, pid=100, name=python, DBE (double bit error)", True),
        ("NVRM: Xid (PCI:0000:3b:00): 48, pid=9999, name=other, DBE (double bit error)", False),
        ("NVRM: Xid (PCI:0000:3b:00): 63, pid=100, name=python, Row Remapper: New row marked for remapping", False),
        ("NVRM: Xid (PCI:0000:3b:00): 145, pid=100, name=python, NVLink RLW", True),
        ("NVRM: Xid (PCI:0000:3b:00): 149, pid=100, name=python, NETIR", True),
        (
            "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            True,
        ),
        (
            "NVRM: Xid (PCI:0000:3b:00): 154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)",
            False,
        ),
        ("NVRM: Xid (PCI:0000:3b:00): 31, pid=100, name=python, MMU Fault", False),
    ],
)
def test_the_drivers_message_about_failed_hardware_explains_lost_connections(line, is_hardware):
    outcome = diagnose(result(rank(0, raised=NCCL), KILLED_BY_US, kernel_log=[line]))
    assert outcome.klass == "comm"
    assert outcome.evidence.get("hardware") == (line if is_hardware else None)


@pytest.mark.parametrize(
    ("gpus", "named"),
    [
        (["GPU-a", "GPU-b", "GPU-c", "GPU-d"], "GPU GPU-c: "),
        (list("abcdefgh"), "GPUs e, f: "),
        (["GPU-a", "GPU-b"], "the GPU of rank 2: "),
    ],
    ids=["one each", "two each", "of one node only"],
)
def test_a_hardware_error_names_the_gpus_of_the_rank_on_whichever_node_it_is(gpus, named):
    error = RankError(2, *ECC, "train.py", 7, "Traceback …", None, 0.0, 1.0)
    on_second_node = RankResult(2, 102, 1, error=error)
    assert diagnose(result(on_second_node, world=4, gpus=gpus)).evidence["hardware"].startswith(named)


TIMED_OUT = (
    "[rank1]:[E1124 10:00:00.0 ProcessGroupNCCL.cpp:700] [Rank 1] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=8, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=10000) ran for 10002 milliseconds before "
    "timing out."
)
TIMED_OUT_NCCL2 = (
    "[rank1]:[E1124 10:00:00.0 ProcessGroupNCCL.cpp:99] [TC] Aborting process on rank 1 due to Watchdog caught "
    "collective operation timeout: NCCL operation timed out"
)
STUCK = (
    "[rank1]:[F1124 10:00:00.0 ProcessGroupNCCL.cpp:1500] ProcessGroupNCCL's watchdog got stuck for 480 seconds "
    "without making progress in monitoring enqueued collectives. "
)
PEER_GONE = (
    "[rank1]:[E1124 10:00:00.0 ProcessGroupNCCL.cpp:99] [TC] Aborting process on rank 1 due to NCCL Async Error: "
    "remote process exited or there was a network error"
)
PEER_GONE_LEGACY = (
    "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG ID 0 PG GUID 0(default_pg) "
    "Rank 1] Process group watchdog thread terminated with exception: NCCL error: remote process exited"
)
FAULT = (
    "[PG ID 0 PG GUID 0(default_pg) Rank 1] Process group watchdog thread terminated with exception: CUDA error: an "
    "illegal memory access was encountered"
)
FAULT_NCCL2 = "[TC] Aborting process on rank 1 due to CUDA error during end event query: an illegal memory access was"
BROKEN = (
    "Rank 1] Process group watchdog thread terminated with exception: CUDA error: uncorrectable ECC error encountered"
)


def ended_by_watchdog(text, *others, **more):
    report = watchdog_report(f"a line of the script\n{text}\nanother line")
    others = others or (rank(0, ended_at=9.0, by=9, killed=True),)
    return diagnose(result(rank(1, ended_at=1.0, by=6, watchdog=report.line), *others, **more))


@pytest.mark.parametrize("text", [TIMED_OUT, TIMED_OUT_NCCL2, STUCK])
def test_a_watchdogs_abort_after_a_timeout_is_the_hang_of_whoever_kept_the_rank_waiting(text):
    missing = Culprit(0, "rank 1 waits in collective 8; rank 0 is still at train.py:5", "train.py", 5)
    outcome = ended_by_watchdog(text, missing_peer=missing)
    assert (outcome.klass, outcome.rank, outcome.file, outcome.line) == ("hang", 0, "train.py", 5)
    assert outcome.signal is None
    assert outcome.evidence["first_error"] == f"Rank 1 was ended by NCCL's watchdog: {text.strip()}"
    after = " after 10 s" if text is TIMED_OUT else ""
    assert outcome.message == f"A collective of NCCL timed out{after}: {missing.description}."
    raised = diagnose(result(rank(0), rank(1, raised=("DistBackendError", text)), missing_peer=missing))
    assert (raised.klass, raised.rank) == ("hang", 0)


@pytest.mark.parametrize("operation", ["recv", "send"])
def test_a_timeout_of_gloo_is_the_hang_of_whoever_kept_the_rank_waiting(operation):
    text = f"[/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 3000ms for {operation} operation to complete"
    waited = rank(0, raised=("RuntimeError", text))
    assert has_timed_out(waited)
    outcome = diagnose(result(waited, KILLED_BY_US, missing_peer=LEFT))
    assert (outcome.klass, outcome.rank, outcome.file, outcome.line) == ("hang", 1, "train.py", 5)
    assert outcome.message == "A collective of gloo timed out after 3 s: rank 1 had finished."
    assert outcome.evidence["first_error"] == f"Rank 0 timed out in gloo: {text}"
    assert diagnose(result(waited, rank(1, raised=BUG, at=2.0))).rank == 1
    assert not has_timed_out(rank(0, raised=("ValueError", "Timed out waiting 3000ms for recv operation of my own")))


def test_lost_connections_hide_no_exception_that_was_being_handled():
    hidden = rank(1, raised=BUG).error
    lost = rank(1, raised=RESET, at=3.0)
    chain = "Traceback …\nValueError: boom\n\nDuring handling of the above exception, another exception occurred:\n\nT"
    lost.error = replace(lost.error, line=9, context=replace(lost.error, context=hidden), traceback=chain)
    peer = rank(0, raised=RESET, at=2.0)
    outcome = diagnose(result(peer, lost, missing_peer=LEFT))
    assert (outcome.klass, outcome.rank, outcome.exception, outcome.line) == ("user_error", 1, "ValueError", 7)
    assert outcome.message == (
        "Rank 1 raised ValueError at train.py:7: boom. While it was handled, a collective at train.py:9 failed."
    )
    assert outcome.evidence["traceback"] == "Traceback …\nValueError: boom\n"
    assert diagnose(result(rank(0, raised=("KeyError", "x"), at=4.0), lost)).exception == "KeyError"
    lost.error = replace(lost.error, context=replace(hidden, file="/lib/queue.py"))
    assert diagnose(result(peer, lost)).klass is OutcomeClass.COMM


@pytest.mark.parametrize("text", [PEER_GONE, PEER_GONE_LEGACY])
def test_a_watchdogs_abort_after_a_peer_had_gone_is_a_cascade(text):
    outcome = ended_by_watchdog(text, rank(0, ended_at=1.2, by=9))
    assert (outcome.klass, outcome.rank, outcome.signal) == ("signal", 0, "SIGKILL")
    alone = ended_by_watchdog(text)
    assert (alone.klass, alone.rank, alone.signal) == ("comm", 1, None)


@pytest.mark.parametrize(
    ("text", "klass", "hardware"),
    [(FAULT, "user_error", False), (FAULT_NCCL2, "user_error", False), (BROKEN, "comm", True)],
)
def test_a_watchdogs_abort_for_an_error_of_the_ranks_own_gpu_is_no_cascade(text, klass, hardware):
    outcome = ended_by_watchdog(text, rank(0, raised=NCCL, at=0.5), gpus=["GPU-a", "GPU-b"])
    assert (outcome.klass, outcome.rank) == (klass, 1)
    assert (outcome.evidence.get("hardware") or "").startswith("GPU GPU-b: " if hardware else "")
    assert bool(outcome.evidence.get("hardware")) is hardware


_UNHANDLED = (
    "NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled cuda error (run with NCCL_DEBUG=INFO "
    "for details), NCCL version 2.29.7\nncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
)
_INTERNAL = "NCCL error in: NCCLUtils.cpp:94\nncclInternalError: Internal check failed.\nLast error:\n"
GPU_ERRORS = {
    "CUDA error: unspecified launch failure": ("user_error", "CUDA_LAUNCH_BLOCKING=1"),
    "CUDA error: an illegal instruction was encountered": ("user_error", "CUDA_LAUNCH_BLOCKING=1"),
    "CUDA error: no kernel image is available for execution on the device": ("user_error", "rekindle doctor"),
    "CUDA driver version is insufficient for CUDA runtime version": ("user_error", "a newer driver"),
    "The NVIDIA driver on your system is too old (found version 11040).": ("user_error", "a newer driver"),
    "CUDA error: CUDA-capable device(s) is/are busy or unavailable": ("comm", "rekindle devices"),
    "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error": ("comm", "hardware error"),
    "CUDA error: initialization error": ("user_error", "spawn"),
    "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing": ("user_error", "spawn"),
    "CUDA error: system not yet initialized": ("comm", "nvidia-fabricmanager"),
    "CUDA error: the launch timed out and was terminated": ("user_error", "screen"),
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm(`": ("user_error", "CUDA_LAUNCH_BLOCKING=1"),
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": ("oom", "CUBLAS_STATUS_ALLOC_FAILED"),
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED": ("user_error", "CUDA_LAUNCH_BLOCKING=1"),
    f"{_UNHANDLED}Cuda failure 35 'CUDA driver version is insufficient for CUDA runtime version'": (
        "user_error", "a newer driver",
    ),
    f"{_UNHANDLED}Cuda failure 2 'out of memory'": ("oom", "NCCL error"),
    f"{_INTERNAL}Message truncated : received 1024 bytes instead of 256": ("user_error", "different sizes"),
    f"{_INTERNAL}Error while creating shared memory segment /dev/shm/nccl-x (size 9637888), error: No space left on "
    "device (28)": ("disk_full", "larger --shm-size"),
}  # fmt: skip


_SUFFIX = (  # of torch 2.11, after each error of CUDA
    "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable "
    "device-side assertions.\n"
)


@pytest.mark.parametrize("suffix", ["", _SUFFIX], ids=["torch 2.15", "torch 2.11"])
@pytest.mark.parametrize(("text", "expected"), GPU_ERRORS.items(), ids=range(len(GPU_ERRORS)))
def test_each_error_of_a_gpu_has_its_class_and_advice_and_only_listed_texts_are_hardware(text, expected, suffix):
    raised = ("DistBackendError" if "NCCL" in text else "RuntimeError", text + suffix)
    outcome = diagnose(result(rank(0, raised=raised), rank(1, raised=NCCL, at=0.5)))
    assert (outcome.klass, outcome.rank) == (expected[0], 0)
    assert expected[1] in outcome.message
    assert bool(outcome.evidence.get("hardware")) is (expected[1] == "hardware error")
    xid = "NVRM: Xid (PCI:0000:3b:00): 79, pid=100, name=python, GPU has fallen off the bus."
    if expected[0] != "oom":
        found = diagnose(result(rank(0, raised=raised), kernel_log=[xid])).evidence["hardware"]
        assert found.endswith("fallen off the bus.")


def test_the_texts_of_the_installed_libraries_are_those_that_are_known():
    nvidia = pytest.importorskip("nvidia", reason="torch has been built without CUDA")
    [root] = nvidia.__path__
    runtime = b"".join(path.read_bytes() for path in Path(root).rglob("libcudart.so*"))
    texts = [text.removeprefix("CUDA error: ") for text in GPU_ERRORS if text.startswith("CUDA error: ")]
    unknown = [text for text in texts if "CUBLAS" not in text and text.encode() not in runtime]
    assert unknown == [] or not runtime
    torch_cuda = Path(root).parent / "torch" / "lib" / "libtorch_cuda.so"
    if torch_cuda.exists():
        with torch_cuda.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as library:
            texts = (
                b"Watchdog caught collective operation timeout: ", b"Aborting process on rank ",
                b"watchdog got stuck for ", b"Process group watchdog thread terminated with exception: ",
            )  # fmt: skip
            assert [text for text in texts if library.find(text) < 0] == []
