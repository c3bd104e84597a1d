"""Noticing a request that this rank should save and stop."""

import signal
import threading
from types import FrameType
from typing import Any

from rekindle.contract.files import read_json
from rekindle.contract.job import DRAINED_EXIT_CODE
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import file_version
from rekindle.contract.states import JobIntent


class Drained(SystemExit):
    """Training was saved and stopped on request; the process ends with ``DRAINED_EXIT_CODE``."""

    def __init__(self, step: int) -> None:
        super().__init__(DRAINED_EXIT_CODE)
        self.step = step

    def __str__(self) -> str:
        return f"drained after step {self.step}"


class LastStep(SystemExit):  # no error: ``sys.exit(0)``
    """Training has reached the last step that the job asks for; the process ends with exit code 0."""

    def __init__(self) -> None:
        super().__init__(0)


class DrainSignal:
    """Notices a request to save and stop, between ``start`` and ``stop``.

    A request arrives in one of two ways: the server's ``intent.json``, which rank 0 checks, and SIGTERM to any rank,
    sent by the keeper, a batch system or a person. The signal only sets a flag: the step is completed.
    """

    def __init__(self, run_dir: RunDir | None, *, reads_intent: bool) -> None:
        self._intent = run_dir.intent if run_dir is not None and reads_intent else None
        self._version: tuple[int, int, int] | None = None  # of the intent that was read last
        self._requested = False
        self._previous: Any = None
        self._installed = self._chain = False

    def start(self, *, chain: bool = True) -> None:
        """Handle SIGTERM, which only the main thread can; in any other only the intent is checked.

        ``chain``: call the previous handler, too.
        """
        self._chain = chain
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGTERM, self._on_signal)
            self._installed = True

    def stop(self, *, drained: bool = False) -> None:
        """Restore the previous signal handler, except in a rank that is drained.

        That rank is about to end. torchrun sends it SIGTERM as soon as another one has ended, which must not kill it.
        """
        if self._installed and not drained:
            signal.signal(signal.SIGTERM, self._previous)
            self._installed = False

    def requested(self) -> bool:
        """True once this rank knows of a request to stop. Cheap enough for every step: one ``stat``."""
        self._requested = self._requested or self._intent_requests()
        return self._requested

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._requested = True
        if self._chain and callable(self._previous):
            self._previous(number, frame)

    def _intent_requests(self) -> bool:
        if self._intent is None:
            return False
        version = file_version(self._intent)
        if version in (None, self._version):
            return False
        try:
            value = read_json(self._intent)
        except OSError:  # of a network file system: the next step asks again
            return False
        self._version = version
        return value is not None and value.get("want") in (JobIntent.DRAIN, JobIntent.CANCEL)
