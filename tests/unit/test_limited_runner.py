import threading

import pytest

from e2e.waiting import until
from rekindle_service.scheduler.limited_runner import LimitedRunner


class Shown(dict):
    """The latest problem by subject, and all of them in order."""

    def __init__(self):
        super().__init__()
        self.all = []

    def __call__(self, subject, problem):
        self[subject] = problem
        self.all.append((subject, problem))


class Failing:
    """An action that fails and counts how often it was tried."""

    def __init__(self, error):
        self.tries, self._error = 0, error

    def __call__(self):
        self.tries += 1
        raise self._error


@pytest.fixture
def shown():
    return Shown()


@pytest.fixture
def make(shown):
    made = []

    def make(limit=30.0, **options):
        made.append(LimitedRunner(limit, shown, **options))
        return made[-1]

    yield make
    for runner in made:
        runner.close()


def test_an_action_that_does_not_return_delays_no_other_and_is_not_repeated(make, shown):
    runner, gate, calls = make(limit=0.05), threading.Event(), []

    def blocked():
        calls.append("blocked")
        gate.wait()

    runner.run("stuck", blocked)
    runner.run("sound", lambda: calls.append("sound"))
    runner.run("stuck", blocked)
    assert calls == ["blocked", "sound"]
    assert list(runner.stuck()) == ["stuck"]
    assert "have not answered" in shown["stuck"]
    gate.set()
    until(lambda: runner.run("stuck", lambda: calls.append("again")) or calls[-1] == "again", "it to be done")
    assert runner.stuck() == {}
    assert shown["stuck"] is None


def test_a_failing_action_waits_before_its_next_try_and_is_shown_once(make, shown):
    runner, fail = make(), Failing(OSError("torn"))
    for _ in range(5):
        runner.run("job", fail)
    assert fail.tries == 1
    assert shown.all == [("job", "torn")]
    assert runner.failing() == 1
    until(lambda: runner.run("job", fail) or fail.tries == 2, "the next try")
    assert shown.all == [("job", "torn")]
    until(lambda: runner.run("job", lambda: None) or not runner.failing(), "it to be well")
    assert shown["job"] is None


def test_an_error_that_is_not_the_jobs_is_tried_again_at_once(make):
    runner, fail = make(passing=(ConnectionError,)), Failing(ConnectionError("busy"))
    for _ in range(3):
        runner.run("job", fail)
    assert fail.tries == 3


def test_what_failed_is_forgotten_with_its_job(make):
    runner = make()
    for job in ("kept", "gone"):
        runner.run(job, lambda: 1 / 0)
    runner.forget(lambda subject: subject == "gone")
    assert runner.failing() == 1


def test_each_stuck_action_costs_one_thread_that_ends_with_it(make):
    before, runner, gate = threading.active_count(), make(limit=0.01), threading.Event()
    for number in range(5):
        runner.run(f"job {number}", gate.wait)
    assert len(runner.stuck()) == 5
    gate.set()
    runner.close()
    until(lambda: threading.active_count() <= before, "the threads to end")
