"""Sessions of browsers: a random cookie that stands for a token, and ends with it."""

import hashlib
import hmac
import secrets
import threading
import time
from dataclasses import replace

import structlog

from rekindle_service.access.permissions import Identity, Via
from rekindle_service.access.tokens import Tokens, digest
from rekindle_service.store import StorageError, Store
from rekindle_service.store.tables import BrowserSession

_log = structlog.get_logger(__name__)

SESSION_SECONDS = 30 * 24 * 3600
_MAX_SESSIONS = 50  # of one token; the oldest ends


class Sessions:
    """Thread-safe. Held in memory, too: who has signed in sees the page also while the database is unavailable."""

    def __init__(self, store: Store, tokens: Tokens) -> None:
        self._store, self._tokens = store, tokens
        self._lock = threading.Lock()
        store.access.delete_expired_sessions(time.time())
        self._rows = {row.digest: row for row in store.access.sessions()}
        name = hmac.new(bytes.fromhex(tokens.home_digest), b"rekindle cookie name", hashlib.sha256).hexdigest()
        self.cookie = f"rekindle_session_{name[:8]}"
        """Name of the cookie: cookies ignore the port, and two servers of one machine need two sessions."""

    def sign_in(self, identity: Identity, address: str) -> tuple[str, int]:
        """A session for the token of ``identity``: the value of the cookie, and its seconds.

        Precondition: the identity has a token. Where the database is unavailable the session ends with this process.
        """
        now = time.time()
        ends = min(now + SESSION_SECONDS, identity.expires_at or float("inf"))
        value = secrets.token_urlsafe(32)
        row = BrowserSession(
            digest=digest(value.encode()),
            token_digest=identity.token_digest or "",
            created_at=now,
            expires_at=ends,
            address=address,
        )
        try:
            self._store.access.add_session(row)
        except StorageError as error:
            _log.warning("A browser session was not stored and will end with the server", reason=str(error))
        with self._lock:
            self._rows[row.digest] = row
        self._end_oldest(row.token_digest)
        return value, int(ends - now)

    def identify(self, value: bytes) -> Identity | None:
        """Who has signed in with this cookie; None where the session or its token has ended."""
        row = self._rows.get(digest(value)) if value else None
        if row is None or row.expires_at <= time.time():
            return None
        identity = self._tokens.identity_of(row.token_digest)
        return None if identity is None else replace(identity, via=Via.BROWSER, session_digest=row.digest)

    def is_current(self, session_digest: str) -> bool:
        row = self._rows.get(session_digest)
        return row is not None and row.expires_at > time.time()

    def sign_out(self, session_digest: str) -> None:
        """End a session now, and then in the database: StorageError means that it would return after a restart."""
        with self._lock:
            self._rows.pop(session_digest, None)
        self._store.access.delete_session(session_digest)

    def _end_oldest(self, token_digest: str) -> None:
        with self._lock:
            mine = [row for row in self._rows.values() if row.token_digest == token_digest]
        for row in sorted(mine, key=lambda row: row.created_at)[:-_MAX_SESSIONS]:
            try:
                self.sign_out(row.digest)
            except StorageError as error:
                _log.warning("An old browser session was not removed from the database", reason=str(error))
