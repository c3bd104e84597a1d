"""One thread for each receiver: what happens is told in order, again and again until it has arrived."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from rekindle.contract.backoff import exponential_backoff
from rekindle_service.config.notification_targets import NotificationTarget
from rekindle_service.notifications.command_hook import CommandHook
from rekindle_service.notifications.delivery import Delivery, Verdict
from rekindle_service.notifications.payload import Payload, happening, notice
from rekindle_service.notifications.webhook import Webhook
from rekindle_service.store import Store
from rekindle_service.store.tables import Event

_log = structlog.get_logger(__name__)

_LOOK_EVERY = 1.0  # seconds
_BATCH = 100  # events
_LONGEST_PAUSE = 300.0  # seconds between two tries
_GIVE_UP = 24 * 3600  # seconds after which a notice is news no more


class Channel(Protocol):
    """A webhook or a command."""

    def deliver(self, notice: Payload) -> Delivery: ...
    def close(self) -> None: ...


class Dispatcher:
    """Tells one receiver. The cursor is stored after each delivery: a server that dies in between tells it again.

    A receiver that is new is told what happens from now on. While one does not answer, its later notices wait; those
    of others, and the engine, do not.
    """

    def __init__(self, store: Store, target: NotificationTarget, receiver: Channel) -> None:
        self._store, self._target, self._receiver = store, target, receiver
        self._cursor: int | None = None  # id of the last event that needs no telling any more
        self._trouble = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"courier {target.label}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Soon: a try that is under way is not waited for, and is repeated by the next server."""
        self._stopping.set()
        self._receiver.close()
        self._thread.join(timeout=1)

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._tell_news()
                self._trouble = ""
            except Exception as error:  # noqa: BLE001 neither a busy database nor a strange event may end the telling
                self._note(error)
            self._stopping.wait(_LOOK_EVERY)

    def _note(self, error: Exception) -> None:
        """Once, until it is another one; while the server stops, it is the receiver being closed."""
        if repr(error) != self._trouble and not self._stopping.is_set():
            self._trouble = repr(error)
            _log.error("Notifying has trouble", receiver=self._target.label, exc_info=error)

    def _tell_news(self) -> None:
        """Everything behind the cursor; returns early when the server stops."""
        deliveries = self._store.deliveries
        if self._cursor is None:
            self._cursor = deliveries.cursor(self._target.key)
        while events := deliveries.events(self._cursor, _BATCH):
            for event in events:
                telling = self._telling(event)
                if telling is not None and not self._settled(telling, event.at + _GIVE_UP):
                    return
                self._cursor = event.id
                if telling is not None or event is events[-1]:
                    deliveries.advance(self._target.key, self._cursor)

    def _telling(self, event: Event) -> Payload | None:
        """None for an event that this receiver is not to be told."""
        what = happening(event)
        if what is None or what not in self._target.events:
            return None
        return notice(event, what, self._store.job(event.job_id), self._store.attempts(event.job_id))

    def _settled(self, telling: Payload, until: float) -> bool:
        """Try until it has arrived, is refused or is too old to be news; False when the server stops before."""
        tries = 0
        while not self._stopping.is_set():
            reply = self._receiver.deliver(telling)
            if reply.verdict is Verdict.DELIVERED:
                return True
            if self._stopping.is_set():
                return False
            if reply.verdict is Verdict.REFUSED or time.time() > until:
                self._complain("A notification was given up", telling, reply)
                return True
            if tries == 0:
                self._complain("A notification is tried again until it arrives", telling, reply)
            tries += 1
            self._stopping.wait(exponential_backoff(tries, first=1.0, maximum=_LONGEST_PAUSE))
        return False

    def _complain(self, what: str, telling: Payload, reply: Delivery) -> None:
        _log.warning(what, receiver=self._target.label, id=telling.id, job=telling.job_id, reason=reply.reason)


def start_dispatchers(store: Store, targets: Sequence[NotificationTarget]) -> Callable[[], None]:
    """Begin to tell everybody; gives back what ends it."""
    couriers = [
        Dispatcher(store, each, Webhook(each) if each.url is not None else CommandHook(each)) for each in targets
    ]
    for courier in couriers:
        courier.start()

    def close() -> None:
        for courier in couriers:
            courier.close()

    return close
