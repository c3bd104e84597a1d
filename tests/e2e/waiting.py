"""Waiting for what another process does."""

import os
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(condition: Callable[[], T | None], sentence: str, timeout: float = 30.0) -> T:
    """The first true value of ``condition``; fails with ``sentence`` when ``timeout`` seconds bring none.

    On a busy machine, where each process gets a share of a core, ``timeout`` is as many times longer.
    """
    started = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - started
        assert waited < timeout * load_factor(), f"still not so after {waited:.0f} s: {sentence}"
        time.sleep(0.02)
    return value


def load_factor() -> float:
    """How many runnable processes share a core, at least 1."""
    return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))
