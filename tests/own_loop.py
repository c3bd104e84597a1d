"""Asynchronous code in a test, whatever ran in the process before."""

from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import anyio

T = TypeVar("T")


def run(function: Callable[..., Awaitable[T]], *args: Any) -> T:
    """What ``function`` comes to, in a thread of its own: Playwright's loop counts as running in the main one."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(anyio.run, function, *args).result()
