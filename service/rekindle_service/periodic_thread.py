"""A thread that does the same thing again and again."""

import threading
from collections.abc import Callable

import structlog

_log = structlog.get_logger(__name__)


class PeriodicThread:
    """It outlives every error of its action, such as that of a disk or a database which does not answer for a while."""

    def __init__(self, name: str, action: Callable[[], None], interval: float, failed: str) -> None:
        """``interval``: seconds from the end of one run to the next; ``failed`` is logged with an error, once."""
        self._action, self._interval, self._failed = action, interval, failed
        self._last_error = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def stopping(self) -> Callable[[], bool]:
        """Whether ``close`` was called: an action that takes long asks for it."""
        return self._stopping.is_set

    def start(self) -> None:
        """The first run begins at once."""
        self._thread.start()

    def close(self) -> None:
        """Wait for the end of the current run; there is none where ``start`` was not called."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._action()
                self._last_error = ""
            except Exception as error:  # noqa: BLE001  # see the class
                if self._last_error != str(error):
                    self._last_error = str(error)
                    _log.error(self._failed, error=str(error))
            self._stopping.wait(self._interval)
