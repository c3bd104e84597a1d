"""How long to wait before the next try."""

from rekindle.contract.backoff import exponential_backoff


def test_delays_double_from_the_first_failure_up_to_the_maximum() -> None:
    delays = [exponential_backoff(failures, first=1.0, maximum=300.0) for failures in (-1, 0, 1, 2, 3, 9, 10, 10_000)]
    assert delays == [0, 0, 1, 2, 4, 256, 300, 300]
