"""Tables of planted failures: what the outcome must say of each. Rank 1 is always the one that failed."""

from dataclasses import dataclass

import pytest

from faults.mismatch import enclosing_function
from rekindle.contract.run_dir.journal import RecordType


@dataclass(frozen=True)
class Planted:
    """What the outcome must be; ``exception`` may name several, parted by |, and ``says`` must be in the message."""

    name: str
    klass: str
    exception: str | None = None
    says: str = ""
    signal: str | None = None


USER = "user_error"
CORPUS = [
    Planted("value", USER, "ValueError", "bad value"),
    Planted("key", USER, "KeyError", "weights"),
    Planted("zero", USER, "ZeroDivisionError", "division by zero"),
    Planted("assert", USER, "AssertionError", "loss went up"),
    Planted("shape", USER, "RuntimeError", "mat1 and mat2"),
    Planted("type", USER, "TypeError", "ones()"),
    Planted("index", USER, "IndexError", "out of range"),
    Planted("attribute", USER, "AttributeError", "no_such_thing"),
    Planted("name", USER, "NameError", "undefined_name"),
    Planted("file", USER, "FileNotFoundError", "no/such/file"),
    Planted("permission", USER, "PermissionError", "Permission denied"),
    Planted("own class", USER, "TrainingError", "diverged"),
    Planted("chained", USER, "TrainingError", "no learning rate"),
    Planted("group", USER, "ExceptionGroup", "several"),
    Planted("recursion", USER, "RecursionError", "maximum recursion depth"),
    Planted("not implemented", USER, "NotImplementedError", "later"),
    Planted("stop iteration", USER, "StopIteration"),
    Planted("unicode", USER, "UnicodeDecodeError", "can't decode byte"),
    Planted("json", USER, "JSONDecodeError", "Expecting property name"),
    Planted("long message", USER, "ValueError", "xxxxxxxx"),
    Planted("no message", USER, "RuntimeError"),
    Planted("two lines", USER, "RuntimeError", "first line"),
    Planted("hostile", USER, "ValueError", "<script>"),
    Planted("keyboard", USER, "KeyboardInterrupt"),
    Planted("loader", USER, "ValueError", "Caught ValueError in DataLoader worker process 0"),
    # which of torch and Python notices a killed worker first differs from time to time
    Planted("killed loader", USER, "RuntimeError|ConnectionResetError|EOFError"),
    Planted("exit 3", USER, "SystemExit", "exited with code 3"),
    Planted("exit text", USER, "SystemExit", "nothing to train"),
    Planted("_exit 7", USER, None, "exit code 7"),
    Planted("_exit 0", USER, None, "exit code 0"),
    Planted("memory", "oom", "MemoryError"),
    Planted("cpu allocation", "oom", "RuntimeError", "allocate"),
    Planted("cuda memory", "oom", "OutOfMemoryError", "CUDA out of memory"),
    Planted("SIGKILL", "signal", signal="SIGKILL"),
    Planted("SIGSEGV", "signal", signal="SIGSEGV"),
    Planted("SIGABRT", "signal", signal="SIGABRT"),
    Planted("SIGBUS", "signal", signal="SIGBUS"),
    Planted("SIGFPE", "signal", signal="SIGFPE"),
    Planted("SIGILL", "signal", signal="SIGILL"),
    Planted("SIGHUP", "signal", signal="SIGHUP"),
    Planted("SIGTERM", "signal", signal="SIGTERM"),
    Planted("SIGXCPU", "signal", says="used up its limit of processor time (RLIMIT_CPU", signal="SIGXCPU"),
    Planted("processor time", "signal", says="used up its limit of processor time, ", signal="SIGKILL"),
    Planted("disk full", "disk_full", "OSError", "No space left"),
    Planted("quota", "disk_full", "OSError", "quota"),
    Planted("store", "comm", "DistNetworkError"),
]
HIDDEN = [
    Planted("late", "hang", says="; rank 1 is still at train.py:"),
    Planted("late_in_group", "hang", says="; rank 1 is still at train.py:"),
    Planted("wait_for_dead_thread", "hang", says="; thread producer of rank 1 had ended by ValueError: the shard is b"),
    Planted("wait_in_finally", "hang", says="; rank 1 is handling ValueError: the loss is negative (train.py:"),
    Planted("other_shape", USER, says="all_reduce number 6 ([[1]] Float) at train.py:"),
    Planted("fail_in_finally", USER, "ValueError", "the loss is negative. While it was handled, a collective at train"),
]
"""Functions of ``hidden.py``: the line is in the one of that name."""


@pytest.mark.short
@pytest.mark.timeout(400)
def test_every_planted_failure_is_named_with_its_class_rank_and_own_exception(begin):
    run = begin("corpus.py", *(planted.name for planted in CORPUS))
    assert run.finish() == "succeeded"
    outcomes = run.outcomes()
    assert len(outcomes) == len(CORPUS) + 1
    wrong = {
        planted.name: {**outcome, "evidence": outcome["evidence"].get("cascades")}
        for planted, outcome in zip(CORPUS, outcomes, strict=False)
        if not is_right(planted, outcome)
    }
    assert wrong == {}


@pytest.mark.timeout(300)
def test_the_cause_is_named_that_what_ended_the_ranks_only_follows(begin):
    run = begin("hidden.py", *(planted.name for planted in HIDDEN), hang_timeout=2.0)
    assert run.finish() == "succeeded"
    outcomes = run.outcomes()
    assert len(outcomes) == len(HIDDEN) + 1
    source = (run.run_dir.code / "train.py").read_text().splitlines()
    for planted, outcome in zip(HIDDEN, outcomes, strict=False):
        assert is_right(planted, outcome), (planted, outcome)
        assert enclosing_function(source, outcome["line"]) == planted.name, (planted, outcome)


def test_a_rank_that_started_cold_names_its_exception_too_and_exits_as_it_should(begin):
    run = begin("hidden.py", "fail_in_finally", warm=False)
    assert run.finish() == "succeeded"
    assert run.outcomes()[0]["exception"] == "ValueError"
    exits = [each for each in run.records(RecordType.RANK_EXITED) if each.attempt == 2]
    assert [(each.exit_code, each.signal) for each in exits] == [(0, None)] * 2


def is_right(planted: Planted, outcome: dict) -> bool:
    crashed = planted.signal in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")
    if crashed and (outcome["file"] != "train.py" or "Fatal Python error" not in outcome["evidence"]["stack"]):
        return False
    return (
        (outcome["class"], outcome["rank"]) == (planted.klass, 1)
        and outcome["exception"] in (planted.exception.split("|") if planted.exception else [None])
        and outcome["signal"] == planted.signal
        and planted.says in outcome["message"]
    )
