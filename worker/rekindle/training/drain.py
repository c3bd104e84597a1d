"""Noticing that somebody asks this rank to save and stop."""

import signal
import threading
from types import FrameType
from typing import Any

from rekindle.contract.files import read_json
from rekindle.contract.job import DRAINED_EXIT_CODE
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.states import JobIntent


class Drained(SystemExit):
    """Training was saved and stopped because somebody asked for it; the process ends with ``DRAINED_EXIT_CODE``."""

    def __init__(self, step: int) -> None:
        super().__init__(DRAINED_EXIT_CODE)
        self.step = step

    def __str__(self) -> str:
        return f"drained after step {self.step}"


class DrainWatch:
    """Listens between ``start`` and ``stop``.

    Two ways lead here: the server's ``intent.json``, which rank 0 looks at, and SIGTERM to any rank, which is what
    the keeper, a batch system or a person sends. The signal only sets a flag: the step goes on to its end.
    """

    def __init__(self, run_dir: RunDir | None, *, reads_intent: bool) -> None:
        self._intent = run_dir.intent if run_dir is not None and reads_intent else None
        self._seen: tuple[int, int] | None = None
        self._asked = False
        self._previous: Any = None
        self._listens = False

    def start(self) -> None:
        """Signal handlers belong to the main thread; elsewhere only the intent is heard."""
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._on_signal)
            self._listens = True

    def stop(self) -> None:
        """Give the signal back to whoever had it."""
        if self._listens:
            signal.signal(signal.SIGTERM, self._previous)
            self._listens = False

    def requested(self) -> bool:
        """Whether this rank knows of a wish to stop. Cheap enough for every step: one ``stat``."""
        if self._intent is not None and not self._asked:
            self._asked = self._intent_asks()
        return self._asked

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._asked = True
        if callable(self._previous):
            self._previous(number, frame)

    def _intent_asks(self) -> bool:
        if self._intent is None:
            return False
        try:
            stat = self._intent.stat()
        except OSError:
            return False
        if (stat.st_ino, stat.st_mtime_ns) == self._seen:
            return False
        self._seen = (stat.st_ino, stat.st_mtime_ns)
        value = read_json(self._intent)
        return value is not None and value.get("want") in (JobIntent.DRAIN, JobIntent.CANCEL)
