import pytest

from job_examples import a_job
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.states import JobState
from rekindle_service.jobs.time_breakdown import TimeCategory, goodput, occupied_seconds, time_breakdown, totals


def attempt(number, started, running, ended, run=1, **steps):
    return AttemptInfo(number, run=run, started_at=started, ranks_running_at=running, ended_at=ended, **steps)


def job(state=JobState.RUNNING, created_at=0.0, started_at=0.0, run=1, **columns):
    return a_job(state=state, created_at=created_at, started_at=started_at, run=run, **columns)


def over(at, **columns):
    return job(state=JobState.SUCCEEDED, ended_at=at, **columns)


def spent(row, attempts, now):
    spent = totals(time_breakdown(row, attempts, now))
    return {category.value: seconds for category, seconds in spent.items() if seconds}


def test_a_job_that_has_no_slots_yet_is_queued_and_has_no_goodput():
    intervals = time_breakdown(job(JobState.QUEUED, started_at=None), [], now=7)
    assert [(interval.category, interval.seconds) for interval in intervals] == [(TimeCategory.QUEUED, 7)]
    assert goodput(intervals, []) is None


def test_every_second_from_submission_to_the_end_has_one_category():
    attempts = [
        attempt(1, 12, 14, 34, last_step=100, saving_seconds=2.0),
        attempt(2, 40, 41, 61, resumed_from_step=50, last_step=150, saving_seconds=1.0),
    ]
    row = over(62, started_at=10.0)
    intervals = time_breakdown(row, attempts, now=999)
    assert spent(row, attempts, 999) == pytest.approx(
        {"queued": 10, "starting": 2 + 2 + 1, "training": 9 + 19, "replayed": 9, "saving": 3, "waiting": 6 + 1}
    )
    ends = [interval.started_at + interval.seconds for interval in intervals]
    assert [interval.started_at for interval in intervals] == pytest.approx([0, *ends[:-1]])
    assert ends[-1] == pytest.approx(62)
    assert goodput(intervals, attempts) == pytest.approx(28 / 52)


CASES = {
    "no attempt yet": (job(JobState.STARTING, started_at=3.0, created_at=1.0), [], {"queued": 2, "starting": 5}),
    "not launched": (job(), [attempt(1, 2, None, None)], {"starting": 8}),
    "a later run": (job(JobState.STARTING, run=2), [attempt(1, 0, 0, 5)], {"training": 5, "queued": 3}),
    "running": (job(), [attempt(1, 0, 5, None)], {"starting": 5, "training": 3}),
    "never ran": (over(8), [attempt(1, 0, None, 8)], {"starting": 8}),
    "drained": (job(JobState.QUEUED), [attempt(1, 0, 0, 5)], {"training": 5, "queued": 3}),
    "between two attempts": (
        over(20), [attempt(1, 0, 0, 5), attempt(2, 15, 15, 20)], {"training": 10, "waiting": 10},
    ),
    "between two runs": (
        over(20), [attempt(1, 0, 0, 5), attempt(2, 15, 15, 20, run=2)], {"training": 10, "queued": 10},
    ),
    "saved for longer than it ran": (
        over(10), [attempt(1, 0, 4, 10, saving_seconds=1e9)], {"starting": 4, "saving": 6},
    ),
    "made no progress before its end": (
        over(20), [attempt(1, 0, 4, 20, stalls=[[12.0, 20.0]])], {"starting": 4, "training": 8, "stalled": 8},
    ),
    "makes no progress now": (
        job(), [attempt(1, 0, 2, None, stalls=[[5.0]])], {"starting": 2, "training": 3, "stalled": 3},
    ),
    "continued": (
        over(20), [attempt(1, 0, 0, 20, stalls=[[2.0, 5.0], [6.0, 8.0]])], {"training": 15, "stalled": 5},
    ),
    "stalled before it ran, and for longer than it lasted": (
        over(20), [attempt(1, 0, 10, 20, stalls=[[5.0, 99.0]])], {"starting": 10, "stalled": 10},
    ),
    "saved for a negative time": (
        over(10), [attempt(1, 0, 4, 10, saving_seconds=-3.0)], {"starting": 4, "training": 6},
    ),
    "steps replayed of every earlier attempt": (
        over(30),
        [attempt(1, 0, 0, 10, last_step=100),
         attempt(2, 10, 10, 20, resumed_from_step=100, last_step=200),
         attempt(3, 20, 20, 30, resumed_from_step=50, last_step=150)],
        {"training": 15, "replayed": 15},
    ),
    "replayed from the first step on": (
        over(20),
        [attempt(1, 0, 0, 10, last_step=100), attempt(2, 10, 10, 20, last_step=40)],
        {"training": 10, "replayed": 10},
    ),
    "ended before anything was restored": (
        over(20),
        [attempt(1, 0, 0, 10, last_step=100), attempt(2, 10, 10, 11),
         attempt(3, 11, 11, 20, resumed_from_step=100, last_step=190)],
        {"training": 20},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("row", "attempts", "expected"), CASES.values(), ids=CASES)
def test_the_time_of_a_job_is_divided_by_what_it_was_spent_on(row, attempts, expected):
    assert spent(row, attempts, now=8) == pytest.approx(expected)


def test_a_clock_set_back_gives_no_negative_time():
    for attempts in ([attempt(1, 100, 101, 50)], [attempt(1, 0, 5, 1)], [attempt(1, 0, 0, 9), attempt(2, 5, 6, 7)]):
        intervals = time_breakdown(over(3, started_at=70.0), attempts, now=10)
        assert all(interval.seconds > 0 for interval in intervals)
        assert goodput(intervals, attempts) is None or 0 <= goodput(intervals, attempts) <= 1


def test_goodput_is_not_known_where_a_script_that_reports_no_steps_was_restarted():
    silent = [attempt(1, 0, 1, 10), attempt(2, 10, 11, 20)]
    assert goodput(time_breakdown(over(20), silent, now=30), silent) is None
    assert goodput(time_breakdown(over(10), silent[:1], now=30), silent[:1]) == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("row", "attempts", "seconds"),
    [
        (job(JobState.QUEUED, started_at=None), [], None),
        (job(JobState.STARTING, started_at=3.0), [], 5),
        (over(10, started_at=2.0), [], 8),
        (over(30, started_at=2.0), [attempt(1, 3, 4, 10), attempt(2, 12, 13, 30)], 28),
        (over(1000, started_at=2.0, run=2), [attempt(1, 3, 4, 10), attempt(2, 900, 901, 1000, run=2)], 108),
        (job(JobState.QUEUED, started_at=2.0), [attempt(1, 2, 2, 5)], 3),
    ],
)
def test_the_time_of_a_job_is_that_with_slots_without_the_gap_before_a_resume(row, attempts, seconds):
    assert occupied_seconds(row, attempts, now=8) == seconds
