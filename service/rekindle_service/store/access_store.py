"""``AccessStore``: tokens, browser sessions, who has uploaded which bundle, and the audit log."""

from collections.abc import Mapping, Sequence

from sqlmodel import col, delete, exists, or_, select, tuple_, update

from rekindle_service.store.sqlite import StorePart
from rekindle_service.store.tables import AccessToken, AuditEntry, BrowserSession, BundleUpload, Job


class AccessStore(StorePart):
    """Part of ``Store``. Thread-safe; any method may raise StorageError."""

    # --- tokens

    def tokens(self) -> list[AccessToken]:
        return self._database.rows(select(AccessToken))

    def add_token(self, token: AccessToken) -> None:
        with self._database.writing() as session:
            session.add(token)

    def revoke_token(self, token_id: str, at: float) -> None:
        """Its browser sessions end, too."""
        with self._database.writing() as session:
            token = session.get(AccessToken, token_id)
            if token is not None:
                token.revoked_at = token.revoked_at or at
                session.exec(delete(BrowserSession).where(col(BrowserSession.token_digest) == token.digest))

    def record_uses(self, uses: Mapping[str, float]) -> None:
        """Set when tokens were last used, by id."""
        with self._database.writing() as session:
            for token_id, at in uses.items():
                session.exec(update(AccessToken).where(col(AccessToken.id) == token_id).values(last_used_at=at))

    # --- sessions

    def sessions(self) -> list[BrowserSession]:
        return self._database.rows(select(BrowserSession))

    def add_session(self, row: BrowserSession) -> None:
        with self._database.writing() as session:
            session.add(row)

    def delete_session(self, digest: str) -> None:
        with self._database.writing() as session:
            session.exec(delete(BrowserSession).where(col(BrowserSession.digest) == digest))

    def delete_expired_sessions(self, now: float) -> None:
        with self._database.writing() as session:
            session.exec(delete(BrowserSession).where(col(BrowserSession.expires_at) <= now))

    # --- bundles

    def add_upload(self, bundle_id: str, person: str, at: float) -> None:
        with self._database.writing() as session:
            session.merge(BundleUpload(bundle_id=bundle_id, person=person, at=at))

    def has_bundle(self, bundle_id: str, person: str) -> bool:
        """Whether ``person`` has uploaded the bundle, or owns a job whose code it is."""
        uploaded = exists().where(col(BundleUpload.bundle_id) == bundle_id, col(BundleUpload.person) == person)
        used = exists().where(col(Job.spec)["code"]["bundle"].as_string() == bundle_id, col(Job.owner) == person)
        with self._database.reading() as session:
            return bool(session.exec(select(or_(uploaded, used))).one())

    # --- the audit log

    def add_audit(self, entries: Sequence[AuditEntry]) -> None:
        with self._database.writing() as session:
            session.add_all(entries)

    def audit(self, limit: int, *, before: int | None = None, person: str | None = None) -> list[AuditEntry]:
        """Latest first, by their times: some are written late. ``before`` is the last id of the page before."""
        key = tuple_(col(AuditEntry.at), col(AuditEntry.id))
        query = select(AuditEntry).order_by(col(AuditEntry.at).desc(), col(AuditEntry.id).desc()).limit(limit)
        if before is not None:
            at = select(AuditEntry.at).where(AuditEntry.id == before).scalar_subquery()
            query = query.where(key < tuple_(at, before))
        if person is not None:
            query = query.where(AuditEntry.person == person)
        return self._database.rows(query)
