"""Loading many modules at once, which is most of what a command does, and most of a server's start."""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PARSING = threading.Lock()
"""Held while Python parses code: in two threads at once, Python 3.11 may raise SystemError ("recursion depth")."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Without the garbage collector, which finds nothing in modules but visits all of them again and again.

    What was loaded stays out of its sight: later collections are shorter, and so is the end of the process.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
