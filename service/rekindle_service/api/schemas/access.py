"""JSON of people, their tokens, and the audit log."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from rekindle_service.access.permissions import PERSON, Scope, Via
from rekindle_service.api.schemas.common import ResponseModel, Timestamp

_MAX_SECONDS = 100 * 365 * 24 * 3600


class TokenCreate(BaseModel):
    """Request for a token. `expires_in` is in seconds; by default the token is valid until it is revoked."""

    model_config = ConfigDict(extra="forbid", strict=True)

    person: Annotated[str, StringConstraints(pattern=f"^{PERSON.pattern}$"), Field(examples=["anna"])]
    scope: Annotated[Scope, Field(strict=False)] = Scope.SUBMIT
    expires_in: Annotated[float | None, Field(gt=0, le=_MAX_SECONDS, allow_inf_nan=False)] = None
    note: Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""


class TokenPublic(ResponseModel):
    """A token, without its secret. `last_used_at` may lag ten minutes."""

    id: str
    person: str
    scope: Scope
    note: str
    created_by: str
    created_at: Timestamp
    expires_at: Timestamp | None
    revoked_at: Timestamp | None
    last_used_at: Timestamp | None
    valid: bool


class TokenCreated(TokenPublic):
    """A new token; `token` is the secret, which is shown now and never again."""

    token: str


class Me(BaseModel):
    """Who you are for this server. `private_jobs`: whether people other than administrators see their own jobs only."""

    person: str
    scope: Scope
    via: Via
    expires_at: Timestamp | None
    private_jobs: bool


class AuditPublic(ResponseModel):
    """One request that changed something or was refused. `person` is null where it is not known."""

    id: int
    at: Timestamp
    person: str | None
    token_id: str | None
    via: str
    address: str
    action: str
    target: str
    status: int
    detail: str
