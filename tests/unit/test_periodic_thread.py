import threading

import pytest
from structlog.testing import capture_logs

from e2e.waiting import until
from rekindle_service import periodic_thread
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


def test_another_thread_continues_where_something_ends_it_and_its_own_error_handling_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcomes = iter([SystemExit(), OSError("lost")])
    over = threading.Event()

    def act() -> None:
        outcome = next(outcomes, None)
        if outcome is None:
            over.set()
        else:
            raise outcome

    def raise_again(_: object) -> None:
        raise MemoryError

    monkeypatch.setattr(periodic_thread, "fields_of", raise_again)
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    thread = PeriodicThread("test", act, 0.001, "It failed")
    with capture_logs() as logs:
        thread.start()
        until(over.is_set, "it runs again")
        thread.close()
    assert [line["event"] for line in logs] == ["A thread had ended; another one continues"] * 2
    assert not thread.is_alive
