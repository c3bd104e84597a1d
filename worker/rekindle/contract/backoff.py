"""How long to wait before the next try of something that keeps failing."""


def exponential_backoff(failures: int, first: float, maximum: float) -> float:
    """Seconds to wait after ``failures`` failures in a row: 0 after none, then ``first``, doubled each time."""
    return 0.0 if failures <= 0 else min(first * 2.0 ** min(failures - 1, 64), maximum)
