import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job_examples import a_job
from rekindle.contract.run_dir.attempt_history import AttemptHistory, AttemptInfo, replayed_steps
from rekindle.contract.run_dir.journal import Journal, RecordType, read_journal
from rekindle.contract.states import JobState
from rekindle_service.jobs.time_breakdown import TimeCategory, time_breakdown
from rekindle_service.store.projection import project

KILLED = {"class": "signal", "message": "rank 1 was killed"}
DONE = {"class": "success", "message": "every rank finished"}


def attempts(*steps, ended=True):
    """Attempts as (step resumed from, last step); the last one still runs unless ``ended``."""
    infos = [AttemptInfo(number, 1, 0.0) for number in range(1, len(steps) + 1)]
    for info, (first, last) in zip(infos, steps, strict=True):
        info.resumed_from_step, info.last_step, info.ended_at = first, last, 1.0
    if not ended:
        infos[-1].ended_at = None
    return infos


@pytest.mark.parametrize(
    ("steps", "replayed"),
    [
        ([], []),
        ([(None, 100)], [0]),
        ([(None, 100), (80, 200)], [20, 0]),
        ([(None, 100), (100, 200)], [0, 0]),
        ([(None, 100), (None, 40)], [100, 0]),  # no snapshot: from the first step again
        ([(None, 100), (100, 200), (50, 150)], [50, 100, 0]),  # a rollback, or a damaged latest snapshot
        ([(None, 100), (80, 120), (80, 120), (80, 300)], [20, 40, 40, 0]),  # lost twice counts for each
        ([(None, 100), (None, None), (90, 300)], [10, None, 0]),  # ended before it restored anything
        ([(None, 100), (None, None)], [0, None]),
        ([(None, None), (None, None)], [None, None]),  # a script that reports no steps
        ([(50, 60), (40, 70)], [10, 0]),  # no more than it had trained itself
    ],
)
def test_steps_beyond_the_earliest_later_beginning_are_replayed(steps, replayed):
    assert list(replayed_steps(attempts(*steps)).values()) == replayed


def test_nothing_is_guessed_before_the_next_attempt_has_restored():
    (last,) = attempts((None, 100))
    last.next_try_at = 5.0
    assert replayed_steps([last]) == {1: None}
    assert replayed_steps(attempts((None, 100), (None, None), ended=False)) == {1: None, 2: None}
    assert replayed_steps(attempts((None, 100), (80, None), ended=False)) == {1: 20, 2: None}
    assert replayed_steps(attempts((None, 100), (80, 200), (None, None), ended=False)) == {1: 20, 2: None, 3: None}


def write(path, number, resumed, last, outcome=KILLED):
    """What a keeper writes about one attempt of 10 seconds, in which ranks of a library-using script train."""
    journal, at = Journal(path), number * 20.0
    journal.write(
        RecordType.ATTEMPT_STARTED, at=at, attempt=number, run=1, world_size=number % 3 + 1, devices=["cpu:0"]
    )
    journal.write(RecordType.RANKS_RUNNING, at=at, attempt=number, ranks=[])
    if resumed is not None:
        journal.write(RecordType.RESUMED, at=at, attempt=number, step=resumed)
    journal.write(
        RecordType.ATTEMPT_ENDED, at=at + 10, attempt=number, outcome=outcome, resumed_from_step=resumed, last_step=last
    )


@settings(max_examples=40)
@given(st.lists(st.tuples(st.none() | st.integers(0, 50), st.none() | st.integers(0, 60)), min_size=1, max_size=5))
def test_fold_rows_and_time_account_agree_on_what_was_replayed(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("run") / "journal.jsonl"
    for number, (resumed, trained) in enumerate(steps, start=1):
        write(path, number, resumed, None if trained is None else (resumed or 0) + trained)
    folded = AttemptHistory.read(path)
    job = a_job(state=JobState.RUNNING, run=1, created_at=0.0, started_at=0.0)
    rows = list(project(job, [], read_journal(path)).attempts.values())
    replayed = replayed_steps(rows)
    assert replayed == replayed_steps(list(folded.attempts.values()))
    seconds = dict.fromkeys(replayed, 0.0)
    for interval in time_breakdown(job, rows, now=999.0):
        if interval.category is TimeCategory.REPLAYED:
            seconds[interval.attempt] = interval.seconds
    for row in rows:
        trained = (row.last_step or 0) - (row.resumed_from_step or 0)
        assert seconds[row.number] == pytest.approx(10 * (replayed[row.number] or 0) / max(trained, 1))


def test_the_fold_keeps_what_keeper_readers_and_rows_need(tmp_path):
    path, journal = tmp_path / "journal.jsonl", Journal(tmp_path / "journal.jsonl")
    journal.write(RecordType.KEEPER_STARTED, at=1.0, run=1, keeper={"pid": 1, "start_time": 2, "boot_id": "b"})
    write(path, 1, None, 13)
    journal.write(RecordType.STRAGGLER, attempt=1, rank=0, share=0.5)
    journal.write(RecordType.STRAGGLER, attempt=1, rank=1, share=0.75)
    journal.write(RecordType.STRAGGLER, attempt=1, rank=0, share=None)
    journal.write(RecordType.RANK_EXITED, attempt=1, rank=1, exit_code=None, signal="SIGKILL", killed=False)
    journal.write(RecordType.RETRY_DECIDED, at=35.0, attempt=1, reason="first failure", delay=1.0, next_try_at=36.0)
    write(path, 2, 10, 20, DONE)
    journal.write(RecordType.JOB_ENDED, run=1, state="succeeded", reason="every rank finished", outcome=DONE)
    history = AttemptHistory.read(path)
    first, second = history.attempts.values()
    assert (first.boot_id, first.stragglers, first.exits[1].signal) == ("b", {1: 0.75}, "SIGKILL")
    assert (first.started_at, first.ended_at, first.outcome.klass, first.reason) == (20, 30, "signal", "first failure")
    assert (second.resumed_from_step, second.last_step, second.reason) == (10, 20, "every rank finished")
    assert (history.runs[1].started_at, history.runs[1].end.state, history.restarts) == (20, "succeeded", 1)
    assert replayed_steps([first, second]) == {1: 3, 2: 0}


def test_records_of_a_superseded_launch_mean_nothing(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    keeper = {"pid": 1, "start_time": 1, "boot_id": "b"}
    journal.write(RecordType.KEEPER_STARTED, run=1, keeper=keeper, launch=1)
    journal.write(RecordType.KEEPER_STARTED, run=1, keeper=keeper, launch=2)
    started = {"run": 1, "world_size": 2, "devices": [], "hosts": ["n1", "n2"]}
    journal.write(RecordType.ATTEMPT_STARTED, attempt=1, launch=2, **started)
    journal.write(RecordType.ATTEMPT_ENDED, attempt=1, launch=1, outcome=DONE)  # by a coordinator that was cut off
    history = AttemptHistory.read(tmp_path / "journal.jsonl")
    assert history.launch == 2
    assert history.attempts[1].hosts == ["n1", "n2"]
    assert history.attempts[1].ended_at is None
    journal.write(RecordType.ATTEMPT_STARTED, attempt=2, launch=1, **started)
    journal.write(RecordType.JOB_ENDED, run=1, state="succeeded", reason="", outcome=DONE, launch=1)
    changes = project(a_job(state=JobState.STARTING, run=1), [], read_journal(tmp_path / "journal.jsonl"))
    assert [(row.number, row.ended_at) for row in changes.attempts.values()] == [(1, None)]
    assert changes.states == []
