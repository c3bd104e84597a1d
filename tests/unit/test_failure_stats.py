import pytest

from rekindle.contract.environment import FailureStats, RankEnv, attempt_environment
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.run_dir.paths import RunDir
from rekindle.keeper.history import failure_stats


def journal_of(tmp_path, *attempts):
    """Each attempt as (seconds that its ranks run or None, class of its outcome or None); one begins every 1000 s."""
    path = tmp_path / "journal.jsonl"
    journal = Journal(path)
    for number, (seconds, outcome) in enumerate(attempts, start=1):
        at = 1000.0 * number
        journal.write(RecordType.ATTEMPT_STARTED, at=at, attempt=number, run=1, world_size=1, devices=["cpu:0"])
        if seconds is not None:
            journal.write(RecordType.RANKS_RUNNING, at=at + 5, attempt=number, ranks=[])
        if outcome is not None:
            ended, value = at + 5 + (seconds or 0), {"class": outcome, "message": ""}
            journal.write(RecordType.ATTEMPT_ENDED, at=ended, attempt=number, outcome=value)
    return path


@pytest.mark.parametrize(
    ("attempts", "stats"),
    [
        ([], FailureStats(0, 0.0)),
        ([(100.0, "signal"), (20.0, "hang"), (7.0, "preempted"), (3.0, None)], FailureStats(2, 127.0)),
        ([(None, "launch_error"), (50.0, "signal")], FailureStats(1, 50.0)),
        ([(900.0, "keeper_lost")], FailureStats(1, 0.0)),
        ([(900.0, "host_lost")], FailureStats(1, 0.0)),
    ],
    ids=["none", "all attempts count", "a launch that never trained does not", "unknown time", "unknown time too"],
)
def test_failures_and_the_time_between_them_are_counted(tmp_path, attempts, stats):
    assert failure_stats(journal_of(tmp_path, *attempts)) == stats


def test_a_rank_reads_them_from_its_environment_and_nonsense_is_no_failure(tmp_path):
    past = FailureStats(3, 127.5)
    own = attempt_environment(run_dir=RunDir(tmp_path), attempt=4, generation="g", snapshot_policy="{}", failures=past)
    assert RankEnv.read(own).failures == past
    for nonsense in ("", "three 5", "1", "1 2 3"):
        assert RankEnv.read({"REKINDLE_PAST_FAILURES": nonsense}).failures == FailureStats()
