import pytest

from rekindle_service.goodput import goodput
from rekindle_service.rows import Attempt


def attempt(number, started, running, ended, run=1, **steps):
    return Attempt(
        job_id="j", number=number, run=run, started_at=started, ranks_running_at=running, ended_at=ended, **steps
    )


def test_there_is_none_before_the_first_attempt():
    assert goodput([], now=10) is None


def test_the_time_until_all_ranks_run_counts_against_a_job():
    assert goodput([attempt(1, 0, 2, 10)], now=99) == pytest.approx(0.8)


def test_an_attempt_that_runs_counts_until_now():
    assert goodput([attempt(1, 0, 5, None)], now=10) == pytest.approx(0.5)


def test_an_attempt_that_never_ran_is_all_loss():
    assert goodput([attempt(1, 0, None, 10)], now=10) == 0


def test_waiting_between_attempts_counts_and_waiting_in_the_queue_does_not():
    same_run = [attempt(1, 0, 0, 5), attempt(2, 15, 15, 20)]
    later_run = [attempt(1, 0, 0, 5), attempt(2, 15, 15, 20, run=2)]
    assert goodput(same_run, now=99) == pytest.approx(0.5)
    assert goodput(later_run, now=99) == pytest.approx(1.0)


def test_steps_that_had_to_be_repeated_are_no_gain():
    attempts = [attempt(1, 0, 0, 10, last_step=100), attempt(2, 10, 10, 20, resumed_from_step=50, last_step=150)]
    assert goodput(attempts, now=99) == pytest.approx(0.75)


def test_an_attempt_whose_every_step_was_lost_gains_nothing():
    attempts = [attempt(1, 0, 0, 10, last_step=100), attempt(2, 10, 10, 20)]
    assert goodput(attempts, now=99) == pytest.approx(0.5)


def test_a_clock_set_back_gives_no_negative_share():
    assert goodput([attempt(1, 100, 101, 50)], now=10) is None
    assert goodput([attempt(1, 0, 5, 1)], now=10) == 0
