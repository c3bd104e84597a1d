"""A job's time limit, and a wall clock that somebody sets."""

import time

import pytest

from rekindle.keeper.supervisor import deadline

DAY = 86_400.0


def left(deadline: float) -> float:
    return deadline - time.monotonic()


def test_the_time_of_earlier_keepers_counts_and_a_clock_set_back_between_them_adds_none() -> None:
    for started_ago, expected in ((None, 100.0), (60.0, 40.0), (-DAY, 100.0)):
        started_at = None if started_ago is None else time.time() - started_ago
        assert left(deadline(100.0, started_at)) == pytest.approx(expected, abs=1)


@pytest.mark.parametrize("jump", [DAY, -DAY])
def test_a_clock_that_is_set_while_the_keeper_lives_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    end, now = deadline(100.0, None), time.time
    monkeypatch.setattr(time, "time", lambda: now() + jump)
    assert left(end) == pytest.approx(100.0, abs=1)
