"""The tables of people: their tokens, browser sessions and uploads, and the audit log. See ``tables``."""

from sqlmodel import Field, SQLModel


class AccessToken(SQLModel, table=True):
    """A token of one person. The token itself is shown once and never stored."""

    __tablename__ = "access_token"

    id: str = Field(primary_key=True)
    digest: str = Field(unique=True)  # SHA-256 of the token, in hexadecimal
    person: str = Field(index=True)
    scope: str  # of ``access.permissions.Scope``
    note: str = ""
    created_by: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None  # within some minutes


class BrowserSession(SQLModel, table=True):
    """A browser that has signed in. It ends with its token."""

    __tablename__ = "browser_session"

    digest: str = Field(primary_key=True)  # SHA-256 of the cookie's value, in hexadecimal
    token_digest: str = Field(index=True)
    created_at: float
    expires_at: float
    address: str = ""


class BundleUpload(SQLModel, table=True):
    """Who has uploaded a bundle; the same archive may be uploaded by several people."""

    __tablename__ = "bundle_upload"

    bundle_id: str = Field(primary_key=True)
    person: str = Field(primary_key=True)
    at: float


class AuditEntry(SQLModel, table=True):
    """One request that changed something or was refused. A row is never changed, and removed only when it is old."""

    __tablename__ = "audit"

    id: int | None = Field(default=None, primary_key=True)
    at: float = Field(index=True)
    person: str | None = Field(default=None, index=True)  # None: not known
    token_id: str | None = None  # None: the home's token, or a user of this machine
    via: str  # "token", "browser", "socket" or "none"
    address: str = ""  # of the client
    action: str  # method and path of the route, as in "POST /api/v1/jobs/{job_id}/cancel"
    target: str = ""  # the path that was requested
    status: int  # of the response
    detail: str = ""
