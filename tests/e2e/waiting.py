"""Waiting for what another process does."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T | None], sentence: str, timeout: float = 30.0) -> T:
    """The first true value of ``condition``; fails with ``sentence`` when ``timeout`` seconds bring none."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        assert time.monotonic() < deadline, f"still not so after {timeout:g} s: {sentence}"
        time.sleep(0.02)
    return value
