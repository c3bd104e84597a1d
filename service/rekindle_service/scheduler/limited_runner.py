"""Work on one job that must not stop the work on others: neither by an error nor by a file that nobody can read."""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from rekindle.contract.backoff import exponential_backoff
from rekindle_service.config.logging_config import fields_of

_log = structlog.get_logger(__name__)

_MAX_DELAY = 10.0  # seconds
_LIMIT_OF_OTHERS = 1.0  # seconds, while the files of one subject do not answer: all may be on the same disk
_MAX_STUCK = 64  # threads that may wait for files at a time


@dataclass(slots=True)
class _Failure:
    """The latest errors of one subject, in a row."""

    error: str = ""
    count: int = 0
    next_at: float = 0.0  # time.monotonic() before which it is not tried again


@dataclass(slots=True)
class _Call:
    """An action in a worker's hands."""

    action: Callable[[], None]
    started_at: float = field(default_factory=time.monotonic)
    done: threading.Event = field(default_factory=threading.Event)
    error: Exception | None = None


class _Worker:
    """A thread that carries out one call after the other. A daemon: one that is stuck must not keep the process."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="reconciler-worker", daemon=True)
        self._thread.start()

    def submit(self, call: _Call) -> None:
        self._calls.put(call)

    def stop(self) -> None:
        """After the current call."""
        self._calls.put(None)

    def join(self) -> None:
        """Precondition: ``stop`` was called, and no call is stuck."""
        self._thread.join()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call.action()
            except Exception as error:  # noqa: BLE001 - shown on the job; the loop must outlive any error of one job
                call.error = error
            call.done.set()


class LimitedRunner:
    """Runs actions one after the other, each for a limited time; only one thread calls it.

    An action that is not done within ``limit`` seconds is left to its thread, which is replaced: what follows does not
    wait for it, and nothing else is done for its subject until it is done. A failed one is tried again after 1, 2, 4,
    8, 10 … seconds, unless its error is one of ``passing``. ``show`` gets the problem of a subject, once until it
    changes, and None once it is over.
    """

    def __init__(
        self, limit: float, show: Callable[[str, str | None], None], passing: tuple[type[Exception], ...] = ()
    ) -> None:
        self._limit, self._show, self._passing = limit, show, passing
        self._worker = _Worker()
        self._stuck: dict[str, _Call] = {}
        self._failures: dict[str, _Failure] = {}

    def stuck(self) -> dict[str, float]:
        """The subjects whose action is not done, and for how many seconds. Any thread may call it."""
        now = time.monotonic()
        return {subject: now - call.started_at for subject, call in list(self._stuck.items())}

    def failing(self) -> int:
        """How many subjects have failed at their latest action. Any thread may call it."""
        return len(self._failures)

    def forget(self, is_over: Callable[[str], bool]) -> None:
        """Drop the failures of subjects that are over."""
        for subject in [each for each in self._failures if is_over(each)]:
            del self._failures[subject]

    def run(self, subject: str, action: Callable[[], None]) -> None:
        if self._is_stuck(subject) or self._is_too_early(subject):
            return
        call = _Call(action)
        self._worker.submit(call)
        if call.done.wait(self._limit_now()):
            self._note(subject, call)
            return
        self._stuck[subject] = call
        self._worker.stop()
        self._worker = _Worker()
        waited = time.monotonic() - call.started_at
        _log.warning("Reconciling waits for files", subject=subject, seconds=round(waited, 1))
        self._show(subject, f"its files have not answered for {waited:.0f} s; is their disk there?")

    def close(self) -> None:
        """Threads that are stuck end with the process."""
        self._worker.stop()
        self._worker.join()

    def _limit_now(self) -> float | None:
        if len(self._stuck) >= _MAX_STUCK:
            return None
        return min(self._limit, _LIMIT_OF_OTHERS) if self._stuck else self._limit

    def _is_stuck(self, subject: str) -> bool:
        call = self._stuck.get(subject)
        if call is None:
            return False
        if not call.done.is_set():
            return True
        del self._stuck[subject]
        _log.info("Reconciling continues", subject=subject)
        self._show(subject, None)
        self._note(subject, call)
        return False

    def _is_too_early(self, subject: str) -> bool:
        failure = self._failures.get(subject)
        return failure is not None and time.monotonic() < failure.next_at

    def _note(self, subject: str, call: _Call) -> None:
        if call.error is None:
            if self._failures.pop(subject, None) is not None:
                self._show(subject, None)
            return
        failure = self._failures.setdefault(subject, _Failure())
        failure.count += 1
        if not isinstance(call.error, self._passing):
            failure.next_at = time.monotonic() + exponential_backoff(failure.count, first=1.0, maximum=_MAX_DELAY)
        if failure.error != repr(call.error):
            failure.error = repr(call.error)
            _log.error("Reconciling failed", subject=subject, **fields_of(call.error))
            self._show(subject, str(call.error))
