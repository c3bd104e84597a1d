import threading

from structlog.testing import capture_logs

from e2e.waiting import until
from rekindle_service.periodic_thread import PeriodicThread


def test_it_outlives_errors_and_logs_each_once_and_again_after_a_success() -> None:
    outcomes = iter(["lost", "lost", None, "lost", "full"])
    runs: list[str | None] = []
    over = threading.Event()

    def act() -> None:
        outcome = next(outcomes, "over")
        runs.append(outcome)
        if outcome == "over":
            over.set()
        elif outcome is not None:
            raise OSError(outcome)

    thread = PeriodicThread("test", act, 0.001, "It failed")
    with capture_logs() as logs:
        thread.start()
        until(over.is_set, "all outcomes are used")
        thread.close()
    assert runs[:5] == ["lost", "lost", None, "lost", "full"]
    assert [(line["event"], line["error"]) for line in logs] == [
        ("It failed", "lost"),
        ("It failed", "lost"),
        ("It failed", "full"),
    ]


def test_it_ends_while_it_waits_and_its_action_can_ask() -> None:
    asked: list[bool] = []
    thread = PeriodicThread("test", lambda: asked.append(thread.stopping()), 3600, "It failed")
    thread.start()
    until(lambda: asked == [False], "it has run once")
    thread.close()
    assert asked == [False]
    assert thread.stopping()


def test_to_close_what_was_never_started_is_no_error() -> None:
    PeriodicThread("test", lambda: None, 1, "It failed").close()
