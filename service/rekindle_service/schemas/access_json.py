"""JSON of people, their tokens, and the audit log."""

from typing import Annotated

from pydantic import Field, StringConstraints

from rekindle_service.access.permissions import PERSON, Scope, Via
from rekindle_service.schemas.fields import ApiModel, RequestModel, Timestamp

_MAX_SECONDS = 100 * 365 * 24 * 3600


class TokenCreate(RequestModel):
    """Request for a token."""

    person: Annotated[str, StringConstraints(pattern=f"^{PERSON.pattern}$"), Field(examples=["anna"])]
    """Name of the person whose token it is, which becomes the owner of what they submit."""
    scope: Annotated[Scope, Field(strict=False)] = Scope.SUBMIT
    """What the token allows: `read`, `submit` (read, and change your own jobs) or `admin` (everything)."""
    expires_in: Annotated[float | None, Field(gt=0, le=_MAX_SECONDS, allow_inf_nan=False)] = None
    """Seconds until the token expires; default: it is valid until it is revoked."""
    note: Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""
    """Text that people read with the token, at most 200 characters."""


class TokenPublic(ApiModel):
    """A token, without its secret."""

    id: str
    """Id of the token."""
    person: str
    """Person whose token it is."""
    scope: Scope
    """What the token allows: `read`, `submit` or `admin`."""
    note: str
    """Text of the person who created it; "" by default."""
    created_by: str
    """Person who created it."""
    created_at: Timestamp
    """When it was created."""
    expires_at: Timestamp | None
    """When it expires; null where it does not."""
    revoked_at: Timestamp | None
    """When it was revoked; null where it was not."""
    last_used_at: Timestamp | None
    """When it was last used, up to ten minutes late; null before the first use."""
    valid: bool
    """Whether it can be used now: neither expired nor revoked."""


class TokenCreated(TokenPublic):
    """A new token with its secret."""

    token: str
    """The secret, which is shown in this response only."""


class Me(ApiModel):
    """Who you are for this server."""

    person: str
    """Your name."""
    scope: Scope
    """What you may do: `read`, `submit` or `admin`."""
    via: Via
    """How you are signed in: by a token, a browser's session or the UNIX socket."""
    expires_at: Timestamp | None
    """When that ends; null where it does not."""
    private_jobs: bool
    """Whether people other than administrators see their own jobs only."""
    version: str
    """Version of the server."""


class AuditPublic(ApiModel):
    """One request that changed something or was rejected."""

    id: int
    """Id of the entry; grows."""
    at: Timestamp
    """When the request came."""
    person: str | None
    """Who sent it; null where that is not known."""
    token_id: str | None
    """Id of the token; null for the token of the home and for users of the socket."""
    via: str
    """`token`, `browser`, `socket` or `none`."""
    address: str
    """IP address of the client."""
    action: str = Field(examples=["POST /api/v1/jobs/{job_id}/cancel"])
    """Method and path of the route."""
    target: str
    """Path that was requested."""
    status: int
    """HTTP status of the response."""
    detail: str
    """Further details; "" where there are none."""


class Login(RequestModel):
    """Login of a browser with the token."""

    token: Annotated[str, StringConstraints(max_length=1000)]
    """The token, as `rekindle token` prints it."""
