import pytest

from job_examples import a_job
from rekindle.contract.states import JobState
from rekindle_service.jobs.time_breakdown import TimeCategory, goodput, time_breakdown, totals
from rekindle_service.store.tables import Attempt


def attempt(number, started, running, ended, run=1, **steps):
    return Attempt(
        job_id="j", number=number, run=run, started_at=started, ranks_running_at=running, ended_at=ended, **steps
    )


def job(state=JobState.RUNNING, created_at=0.0, started_at=0.0, run=1, **columns):
    return a_job(state=state, created_at=created_at, started_at=started_at, run=run, **columns)


def over(at, **columns):
    return job(state=JobState.SUCCEEDED, ended_at=at, **columns)


def spent(row, attempts, now):
    return {
        category.value: seconds for category, seconds in totals(time_breakdown(row, attempts, now)).items() if seconds
    }


def test_a_job_that_has_no_slots_yet_is_queued_and_has_no_goodput():
    intervals = time_breakdown(job(JobState.QUEUED, started_at=None), [], now=7)
    assert [(interval.category, interval.seconds) for interval in intervals] == [(TimeCategory.QUEUED, 7)]
    assert goodput(intervals, []) is None


def test_every_second_from_submission_to_the_end_goes_into_one_thing():
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


def test_the_time_until_the_keeper_has_launched_the_first_attempt_is_starting():
    assert spent(job(JobState.STARTING, started_at=3.0, created_at=1.0), [], 5) == {"queued": 2, "starting": 4 - 2}
    assert spent(job(), [attempt(1, 2, None, None)], 5) == {"starting": 5}
    assert spent(job(JobState.STARTING, run=2), [attempt(1, 0, 0, 5)], 8) == {"training": 5, "queued": 3}


def test_an_attempt_that_runs_trains_until_now():
    assert spent(job(), [attempt(1, 0, 5, None)], 10) == {"starting": 5, "training": 5}


def test_an_attempt_that_never_ran_is_all_start():
    assert spent(over(10), [attempt(1, 0, None, 10)], 10) == {"starting": 10}


def test_between_two_attempts_a_job_waits_and_between_two_runs_it_is_queued():
    same_run = [attempt(1, 0, 0, 5), attempt(2, 15, 15, 20)]
    later_run = [attempt(1, 0, 0, 5), attempt(2, 15, 15, 20, run=2)]
    assert spent(over(20), same_run, 99) == {"training": 10, "waiting": 10}
    assert spent(over(20), later_run, 99) == {"training": 10, "queued": 10}


def test_a_drained_job_is_queued_until_now():
    assert spent(job(JobState.QUEUED), [attempt(1, 0, 0, 5)], 8) == {"training": 5, "queued": 3}


def test_replayed_steps_of_every_earlier_attempt_are_no_gain():
    attempts = [
        attempt(1, 0, 0, 10, last_step=100),
        attempt(2, 10, 10, 20, resumed_from_step=100, last_step=200),
        attempt(3, 20, 20, 30, resumed_from_step=50, last_step=150),
    ]
    assert spent(over(30), attempts, 99) == pytest.approx({"training": 15, "replayed": 15})


def test_an_attempt_from_the_first_step_on_replays_all_before_it():
    attempts = [attempt(1, 0, 0, 10, last_step=100), attempt(2, 10, 10, 20, last_step=40)]
    assert spent(over(20), attempts, 99) == pytest.approx({"training": 10, "replayed": 10})


def test_an_attempt_that_ended_before_it_restored_anything_costs_no_steps():
    attempts = [
        attempt(1, 0, 0, 10, last_step=100),
        attempt(2, 10, 10, 11),
        attempt(3, 11, 11, 20, resumed_from_step=100, last_step=190),
    ]
    assert spent(over(20), attempts, 99) == pytest.approx({"training": 20})


def test_no_attempt_saves_for_longer_than_it_ran():
    assert spent(over(10), [attempt(1, 0, 4, 10, saving_seconds=1e9)], 10) == {"starting": 4, "saving": 6}
    assert spent(over(10), [attempt(1, 0, 4, 10, saving_seconds=-3.0)], 10) == {"starting": 4, "training": 6}


def test_a_clock_set_back_gives_no_negative_time():
    for attempts in ([attempt(1, 100, 101, 50)], [attempt(1, 0, 5, 1)], [attempt(1, 0, 0, 9), attempt(2, 5, 6, 7)]):
        intervals = time_breakdown(over(3, started_at=70.0), attempts, now=10)
        assert all(interval.seconds > 0 for interval in intervals)
        assert goodput(intervals, attempts) is None or 0 <= goodput(intervals, attempts) <= 1


def test_goodput_is_not_known_where_a_script_that_reports_no_steps_was_restarted():
    silent = [attempt(1, 0, 1, 10), attempt(2, 10, 11, 20)]
    assert goodput(time_breakdown(over(20), silent, now=30), silent) is None
    assert goodput(time_breakdown(over(10), silent[:1], now=30), silent[:1]) == pytest.approx(0.9)
