"""One thread for each notification channel: events are delivered in order, each retried until it arrives."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

import structlog

from rekindle.contract.backoff import exponential_backoff
from rekindle_service.config.notification_targets import NotificationTarget
from rekindle_service.notifications.channels import Delivery, DeliveryResult, channel_of
from rekindle_service.notifications.payload import Payload, build_payload, event_type
from rekindle_service.store import Store
from rekindle_service.store.tables import Event

_log = structlog.get_logger(__name__)

_POLL_INTERVAL = 1.0  # seconds
_BATCH = 100  # events
_MAX_BACKOFF = 300.0  # seconds between two tries
_EXPIRY = 24 * 3600  # seconds after which an event is no longer delivered


class Dispatcher:
    """Serves one channel. The cursor is stored after each delivery: a server that dies in between delivers it again.

    A new channel gets the events from now on. While one does not answer, its later events wait; those of other
    channels, and the reconciler, do not.
    """

    def __init__(self, store: Store, target: NotificationTarget) -> None:
        self._store, self._target = store, target
        self._channel = channel_of(target)
        self._cursor: int | None = None  # id of the last event that needs no delivery any more
        self._last_error = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"notify {target.label}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Does not wait for a delivery in progress; the next server repeats it."""
        self._stopping.set()
        self._channel.close()
        self._thread.join(timeout=1)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._deliver_pending()
                self._last_error = ""
            except Exception as error:  # noqa: BLE001 neither a busy database nor a strange event may end the thread
                self._log_error(error)
            self._stopping.wait(_POLL_INTERVAL)

    def _log_error(self, error: Exception) -> None:
        """Once, until the error is another one; while the server stops, it is the closed channel."""
        if repr(error) != self._last_error and not self._stopping.is_set():
            self._last_error = repr(error)
            _log.error("Notifications cannot be sent", channel=self._target.label, exc_info=error)

    def _deliver_pending(self) -> None:
        """Every event after the cursor; returns early when the server stops."""
        feed = self._store.feed
        if self._cursor is None:
            self._cursor = feed.delivered(self._target.key)
        while events := feed.events(self._cursor, _BATCH):
            for event in events:
                payload = self._payload(event)
                if payload is not None and not self._deliver_with_retry(payload, event.at + _EXPIRY):
                    return
                self._cursor = event.id
                if payload is not None or event is events[-1]:
                    feed.set_delivered(self._target.key, self._cursor)

    def _payload(self, event: Event) -> Payload | None:
        """None for an event that this channel has not subscribed to."""
        kind = event_type(event)
        if kind is None or kind not in self._target.events:
            return None
        job = self._store.job(event.job_id)
        if self._target.owner is not None and (job is None or job.owner != self._target.owner):
            return None
        return build_payload(event, kind, job, self._store.attempts(event.job_id))

    def _deliver_with_retry(self, payload: Payload, expires_at: float) -> bool:
        """Try until it is delivered, rejected or expired; False when the server stops before."""
        tries = 0
        while not self._stopping.is_set():
            delivery = self._channel.deliver(payload)
            if delivery.result is DeliveryResult.DELIVERED:
                return True
            if self._stopping.is_set():
                return False
            if delivery.result is DeliveryResult.REJECTED or time.time() > expires_at:
                self._warn("A notification was dropped", payload, delivery)
                return True
            if tries == 0:
                self._warn("A notification could not be delivered; retrying", payload, delivery)
            tries += 1
            self._stopping.wait(exponential_backoff(tries, first=1.0, maximum=_MAX_BACKOFF))
        return False

    def _warn(self, message: str, payload: Payload, delivery: Delivery) -> None:
        _log.warning(message, channel=self._target.label, id=payload.id, job=payload.job_id, reason=delivery.reason)


def start_dispatchers(store: Store, targets: Sequence[NotificationTarget]) -> Callable[[], None]:
    """Start one dispatcher for each channel; returns the function that stops them."""
    started = ExitStack()
    for target in targets:
        dispatcher = Dispatcher(store, target)
        dispatcher.start()
        started.callback(dispatcher.close)
    return started.close
