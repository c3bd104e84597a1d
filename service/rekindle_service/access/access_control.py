"""``AccessControl``: who somebody is and what they may do, with the audit log and the limits on requests."""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass

import structlog

from rekindle_service.access.permissions import Identity, Permissions, Scope, Via
from rekindle_service.access.sessions import Sessions
from rekindle_service.access.tokens import Tokens
from rekindle_service.config.home import server_uid, user_name
from rekindle_service.config.settings import PriorityCeilings
from rekindle_service.periodic_thread import PeriodicThread
from rekindle_service.store import StorageError, Store
from rekindle_service.store.tables import AuditEntry

_log = structlog.get_logger(__name__)

_FLUSH_INTERVAL = 5.0  # seconds
_ROOT = 0
_MAX_BUFFERED = 200  # refusals between two writes
_MAX_BUCKETS = 10_000
_BURST_SECONDS = 10.0
_FAILURES_PER_MINUTE = 20.0  # from one address
_ALL_FAILURES_PER_MINUTE = 300.0


class AuditLog:
    """Thread-safe.

    What a person has changed is committed before they get the answer. Refused requests cost nothing to send, so
    they are buffered, and beyond a number only counted: nobody fills the disk with them.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._refused: deque[AuditEntry] = deque()
        self._omitted = 0
        self._lock = threading.Lock()

    def record(self, entry: AuditEntry) -> None:
        """Commit ``entry``. Where the database is unavailable it is in the server's log instead."""
        try:
            self._store.access.add_audit([entry])
        except StorageError as error:
            _log.error("The audit log cannot be written", reason=str(error), **_fields(entry))

    def record_refusal(self, entry: AuditEntry) -> None:
        """Write ``entry`` at the next ``flush``."""
        with self._lock:
            if len(self._refused) < _MAX_BUFFERED:
                self._refused.append(entry)
            else:
                self._omitted += 1

    def flush(self) -> None:
        """Write the refusals so far. Raises nothing: they are in the server's log where the database is unavailable."""
        with self._lock:
            entries, omitted = list(self._refused), self._omitted
            self._refused.clear()
            self._omitted = 0
        if not entries:
            return
        if omitted:
            entries[-1].detail = f"and {omitted} more refused requests until now"
        try:
            self._store.access.add_audit(entries)
        except StorageError as error:
            _log.error("The audit log cannot be written", reason=str(error), refusals=len(entries) + omitted)


def _fields(entry: AuditEntry) -> dict[str, object]:
    return entry.model_dump(exclude={"id", "at"})


@dataclass(slots=True)
class TokenBucket:
    """Allows ``rate`` events per second, and ``burst`` at once after a pause."""

    rate: float
    burst: float
    level: float
    at: float  # seconds of CLOCK_MONOTONIC

    def take(self, now: float) -> float:
        """0 where one more event is allowed, and it is counted; else the seconds until one is."""
        self.level = min(self.burst, self.level + (now - self.at) * self.rate)
        self.at = now
        if self.level >= 1:
            self.level -= 1
            return 0.0
        return (1 - self.level) / self.rate


class RateLimit:
    """Thread-safe. One bucket for each key; the least recently used are forgotten, so memory is bounded."""

    def __init__(self, rate: float, burst: float) -> None:
        """``rate``: events per second; 0: no limit."""
        self._rate, self._burst = rate, burst
        self._buckets: OrderedDict[Hashable, TokenBucket] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, key: Hashable, now: float | None = None) -> float:
        """Count one event of ``key``; returns 0, or the seconds to wait where it exceeds the limit."""
        if not self._rate:
            return 0.0
        now = time.monotonic() if now is None else now
        with self._lock:
            bucket = self._buckets.pop(key, None) or TokenBucket(self._rate, self._burst, self._burst, now)
            self._buckets[key] = bucket
            if len(self._buckets) > _MAX_BUCKETS:
                self._buckets.popitem(last=False)
            return bucket.take(now)


class FailureLimit:
    """Attempts with a wrong token, of each address and of all.

    It decides only how a wrong token is answered: the right one is accepted at any time, so nobody can lock out others
    who share an address with them, as all users of one machine or of one proxy do. Tokens have 256 random bits: no
    number of attempts finds one, and the limit only keeps those who try from filling the log.
    """

    def __init__(self) -> None:
        self._by_address = RateLimit(_FAILURES_PER_MINUTE / 60, _FAILURES_PER_MINUTE)
        self._all = RateLimit(_ALL_FAILURES_PER_MINUTE / 60, _ALL_FAILURES_PER_MINUTE)

    def wait(self, address: str) -> float:
        """Count a wrong token; returns 0, or the seconds after which the next one gets a plain answer again."""
        return max(self._by_address.wait(address), self._all.wait("all"))


class AccessControl:
    """Thread-safe. Everything that a request needs is in memory."""

    def __init__(
        self,
        store: Store,
        home_token: str,
        *,
        private_jobs: bool = False,
        max_priority: PriorityCeilings | None = None,
        request_rate: float = 0.0,
        socket_scope: Scope | None = None,
    ) -> None:
        """``request_rate``: requests per second of each person; 0: no limit. ``socket_scope``: of ``identify_user``."""
        self._socket_scope = socket_scope
        self.tokens = Tokens(store, home_token)
        self.sessions = Sessions(store, self.tokens)
        self.permissions = Permissions(private_jobs, max_priority or PriorityCeilings())
        self.audit = AuditLog(store)
        self.failures = FailureLimit()
        self.requests = RateLimit(request_rate, request_rate * _BURST_SECONDS)
        self._thread = PeriodicThread("access", self._flush, _FLUSH_INTERVAL, "Uses of tokens cannot be stored")

    def start(self) -> None:
        """Write refusals and last uses of tokens every few seconds, until ``close``."""
        self._thread.start()

    def close(self) -> None:
        self._thread.close()
        self._flush()

    def identify_user(self, uid: int) -> Identity | None:
        """The user of this machine who has connected to the UNIX socket; None where they have no access.

        The user who runs the server and root can read its files in any case: they have all permissions. Others, if
        the socket lets them in at all, have the scope of the settings, under the name of their account.
        """
        scope = Scope.ADMIN if uid in (server_uid(), _ROOT) else self._socket_scope
        return None if scope is None else Identity(user_name(uid), scope, Via.SOCKET)

    def is_current(self, identity: Identity) -> bool:
        """Whether the token and the session of an earlier request are still valid."""
        if identity.session_digest is not None and not self.sessions.is_current(identity.session_digest):
            return False
        return identity.token_digest is None or self.tokens.identity_of(identity.token_digest) is not None

    def _flush(self) -> None:
        self.audit.flush()
        try:
            self.tokens.record_uses()
        except StorageError as error:
            _log.warning("The last uses of tokens were not stored", reason=str(error))
