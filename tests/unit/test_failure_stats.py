import json

import pytest

from rekindle.contract.environment import FailureStats, RankEnv, attempt_environment
from rekindle.contract.outcome import OutcomeClass
from rekindle.contract.run_dir.journal import RecordType
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.history import failure_stats

LAUNCH = {"run": 1, "world_size": 1, "devices": ["cpu:0"]}


def journal_of(tmp_path, *attempts):
    """Each attempt as (seconds that its ranks run or None, class of its outcome or None); one begins every 1000 s."""
    lines = []
    for number, (seconds, outcome) in enumerate(attempts, start=1):
        at = 1000.0 * number
        lines.append({"type": RecordType.ATTEMPT_STARTED, "at": at, "attempt": number, **LAUNCH})
        if seconds is not None:
            lines.append({"type": RecordType.RANKS_RUNNING, "at": at + 5, "attempt": number, "ranks": []})
        if outcome is not None:
            end = {"type": RecordType.ATTEMPT_ENDED, "at": at + 5 + (seconds or 0), "attempt": number}
            lines.append({**end, "outcome": {"class": outcome, "message": ""}})
    path = tmp_path / "journal.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_a_new_job_has_not_failed(tmp_path):
    assert failure_stats(tmp_path / "journal.jsonl") == FailureStats(0, 0.0)


def test_failures_and_the_time_between_them_are_counted_over_all_attempts(tmp_path):
    attempts = (100.0, OutcomeClass.SIGNAL), (20.0, OutcomeClass.HANG), (7.0, OutcomeClass.PREEMPTED), (3.0, None)
    assert failure_stats(journal_of(tmp_path, *attempts)) == FailureStats(2, 127.0)


def test_a_launch_that_never_trained_says_nothing(tmp_path):
    attempts = (None, OutcomeClass.LAUNCH_ERROR), (50.0, OutcomeClass.SIGNAL)
    assert failure_stats(journal_of(tmp_path, *attempts)) == FailureStats(1, 50.0)


@pytest.mark.parametrize("lost", [OutcomeClass.KEEPER_LOST, OutcomeClass.HOST_LOST])
def test_an_end_that_nobody_saw_counts_without_its_time(tmp_path, lost):
    assert failure_stats(journal_of(tmp_path, (900.0, lost))) == FailureStats(1, 0.0)


def test_a_rank_is_told_of_them(tmp_path):
    told = FailureStats(3, 127.5)
    own = attempt_environment(run_dir=RunDir(tmp_path), attempt=4, generation="g", snapshot_policy="{}", failures=told)
    assert RankEnv.read(own).failures == told


@pytest.mark.parametrize("nonsense", ["", "three 5", "1", "1 2 3"])
def test_nonsense_in_the_environment_is_no_failure(nonsense):
    assert RankEnv.read({"REKINDLE_PAST_FAILURES": nonsense}).failures == FailureStats()
