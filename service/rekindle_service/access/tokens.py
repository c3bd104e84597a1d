"""Tokens of people: created once, stored as SHA-256, held in memory so that a broken database locks nobody out."""

import hashlib
import secrets
import threading
import time
from dataclasses import dataclass

from rekindle_service.access.permissions import Identity, Scope, Via
from rekindle_service.config.home import new_job_id, server_user
from rekindle_service.store import Store
from rekindle_service.store.tables import AccessToken

_PREFIX = "rk_"  # for scanners that look for secrets in repositories and logs
_USE_RECORDED_EVERY = 600.0  # seconds


@dataclass(frozen=True, slots=True)
class CreatedToken:
    """``secret`` exists only here: it is shown once."""

    row: AccessToken
    secret: str


class Tokens:
    """Thread-safe. The home's token belongs to the user who runs the server, and never expires."""

    def __init__(self, store: Store, home_token: str) -> None:
        self._store = store
        self._lock = threading.Lock()
        self.home_digest = digest(home_token.encode())
        self._home = Identity(server_user(), Scope.ADMIN, Via.TOKEN, token_digest=self.home_digest)
        self._rows = {row.digest: row for row in store.access.tokens()}
        self._uses: dict[str, float] = {}  # last uses that the database does not have yet, by id

    def identify(self, candidate: bytes) -> Identity | None:
        """Whose token ``candidate`` is; None: nobody's, or it is revoked or has expired."""
        return self.identity_of(digest(candidate))

    def identity_of(self, token_digest: str) -> Identity | None:
        if token_digest == self.home_digest:
            return self._home
        row = self._rows.get(token_digest)
        if row is None or not is_valid(row, now := time.time()):
            return None
        if row.last_used_at is None or now - row.last_used_at > _USE_RECORDED_EVERY:
            row.last_used_at = self._uses[row.id] = now
        return Identity(row.person, Scope(row.scope), Via.TOKEN, token_digest, row.id, expires_at=row.expires_at)

    def create(
        self, person: str, scope: Scope, created_by: str, *, seconds: float | None = None, note: str = ""
    ) -> CreatedToken:
        """A new token, valid for ``seconds`` (None: until it is revoked). Raises StorageError."""
        secret, now = _PREFIX + secrets.token_urlsafe(32), time.time()
        row = AccessToken(
            id=new_job_id(),
            digest=digest(secret.encode()),
            person=person,
            scope=scope,
            note=note,
            created_by=created_by,
            created_at=now,
            expires_at=None if seconds is None else now + seconds,
        )
        self._store.access.add_token(row)
        with self._lock:
            self._rows[row.digest] = row
        return CreatedToken(row, secret)

    def all(self, person: str | None = None) -> list[AccessToken]:
        """Every token, also revoked and expired ones, oldest first; ``person``: only theirs."""
        with self._lock:
            rows = list(self._rows.values())
        return sorted((row for row in rows if person in (None, row.person)), key=lambda row: row.created_at)

    def revoke(self, token_id: str) -> AccessToken | None:
        """End a token now, and then in the database: StorageError means that it would be valid after a restart.

        None: there is no such token.
        """
        row = next((row for row in self.all() if row.id == token_id), None)
        if row is not None:
            row.revoked_at = row.revoked_at or time.time()
            self._store.access.revoke_token(row.id, row.revoked_at)
        return row

    def record_uses(self) -> None:
        """Write when the tokens were last used. Raises StorageError."""
        uses, self._uses = self._uses, {}
        if uses:
            self._store.access.record_uses(uses)


def digest(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()


def is_valid(row: AccessToken, now: float) -> bool:
    return row.revoked_at is None and (row.expires_at is None or now < row.expires_at)
