"""Repeated requests: the same ``Idempotency-Key`` with the same request makes one job or experiment."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from rekindle_service.store.tables import Experiment, Job
from rekindle_service.submission import BusyError, FieldError, SubmissionError

Keyed = TypeVar("Keyed", Job, Experiment)

_MAX_WAITING = 8
_MAX_WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """The key that a client gave its request, and the digest of that request."""

    value: str
    request_digest: str

    def check(self, known: Keyed) -> Keyed:
        """``known``, which a request with this key has made. Raises SubmissionError if it was another request."""
        if known.request_digest != self.request_digest:
            kind = "job" if isinstance(known, Job) else "experiment"
            rule = f"was used for another request, which made {kind} {known.id}"
            hint = "a repeat must have the same body; a new request needs a key of its own"
            raise SubmissionError([FieldError("Idempotency-Key", rule, self.value, hint)])
        return known


class IdempotencyLocks:
    """Requests with the same idempotency key are processed one at a time: a repeat waits for the first."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._in_flight: set[str] = set()
        self._waiting = 0

    @contextmanager
    def lock(self, key: IdempotencyKey | None) -> Iterator[None]:
        """Wait until no other request with ``key`` is in flight; without a key there is nothing to wait for.

        Raises BusyError where that takes too long, or too many others wait: each of them occupies a thread.
        """
        if key is None:
            yield
            return
        self._enter(key.value)
        try:
            yield
        finally:
            with self._changed:
                self._in_flight.remove(key.value)
                self._changed.notify_all()

    def _enter(self, key: str) -> None:
        with self._changed:
            if key in self._in_flight:
                self._waiting += 1
                try:
                    is_free = self._waiting <= _MAX_WAITING and self._changed.wait_for(
                        lambda: key not in self._in_flight, _MAX_WAIT_SECONDS
                    )
                finally:
                    self._waiting -= 1
                if not is_free:
                    raise BusyError(f"the first request with the Idempotency-Key {key!r} is still being processed")
            self._in_flight.add(key)
