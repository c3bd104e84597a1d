"""How long to wait before the next try."""

from rekindle.contract.backoff import exponential_backoff


def test_delays_double_up_to_the_maximum() -> None:
    delays = [exponential_backoff(failures, first=1.0, maximum=300.0) for failures in (1, 2, 3, 9, 10, 10_000)]
    assert delays == [1, 2, 4, 256, 300, 300]


def test_without_a_failure_there_is_no_delay() -> None:
    assert [exponential_backoff(failures, first=1.0, maximum=60.0) for failures in (-1, 0)] == [0, 0]
