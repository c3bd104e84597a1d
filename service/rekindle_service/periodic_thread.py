"""A thread that does the same thing again and again."""

import threading
import time
from collections.abc import Callable

import structlog

from rekindle_service.config.logging_config import fields_of

_log = structlog.get_logger(__name__)


class PeriodicThread:
    """It outlives every error of its action, such as that of a disk or a database which does not answer for a while.

    Where something ends the thread all the same (an exit, memory that an error's own handling lacks), another one
    continues.
    """

    def __init__(self, name: str, action: Callable[[], None], interval: float, failed: str) -> None:
        """``interval``: seconds from the end of one run to the next; ``failed`` is logged with an error, once."""
        self._name, self._action, self._interval, self._failed = name, action, interval, failed
        self._last_error = ""
        self._ran_at = time.monotonic()  # when the latest run ended
        self._stopping = False
        self._woken = threading.Event()
        self._thread = self._make_thread()

    @property
    def stopping(self) -> Callable[[], bool]:
        """Whether ``close`` was called: an action that takes long asks for it."""
        return lambda: self._stopping

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def age(self) -> float:
        """Seconds since the end of the latest run, successful or not, or since this was made."""
        return time.monotonic() - self._ran_at

    def start(self) -> None:
        """The first run begins at once."""
        self._thread.start()

    def wake(self) -> None:
        """Begin the next run now instead of after the interval."""
        self._woken.set()

    def close(self) -> None:
        """Wait for the end of the current run; there is none where ``start`` was not called."""
        self._stopping = True
        self._woken.set()
        while self._thread.is_alive():
            self._thread.join()

    def _make_thread(self) -> threading.Thread:
        return threading.Thread(target=self._run, name=self._name, daemon=True)

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._woken.clear()
                self._act()
                if not self._stopping:
                    self._woken.wait(self._interval)
        finally:
            self._ran_at = time.monotonic()
            if not self._stopping:
                time.sleep(min(self._interval, 1.0))  # what ended it may do so each time
                self._thread = self._make_thread()
                self._thread.start()
                _log.error("A thread had ended; another one continues", thread=self._name)

    def _act(self) -> None:
        try:
            self._action()
            self._last_error = ""
        except Exception as error:  # noqa: BLE001  # see the class
            if self._last_error != str(error):
                self._last_error = str(error)
                _log.error(self._failed, **fields_of(error))
        self._ran_at = time.monotonic()
