"""``AccessControl``: the one place that the API asks who somebody is and what they may do."""

import structlog

from rekindle_service.access.audit import AuditLog
from rekindle_service.access.limits import FailureLimit, RateLimit, RequestLimit
from rekindle_service.access.permissions import Identity, Permissions, Scope, Via
from rekindle_service.access.sessions import Sessions
from rekindle_service.access.tokens import Tokens
from rekindle_service.config.settings import PriorityCeilings
from rekindle_service.config.unix_users import server_uid, user_name
from rekindle_service.periodic_thread import PeriodicThread
from rekindle_service.store import StorageError, Store

_log = structlog.get_logger(__name__)

_FLUSH_INTERVAL = 5.0  # seconds
_ROOT = 0


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
        self.requests: RateLimit = RequestLimit(request_rate)
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
