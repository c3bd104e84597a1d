"""Who sends a request, and whether they may do what it asks for. ``AuthMiddleware`` has identified them."""

from typing import Annotated

from fastapi import Depends, Header, Request
from pydantic import StringConstraints

from rekindle_service.access.permissions import Identity, Permissions, Scope, changes_something
from rekindle_service.api.middleware.auth import insufficient_scope
from rekindle_service.api.problem_details import ProblemError
from rekindle_service.config.unix_users import server_user


def identity_of(request: Request) -> Identity:
    identity: Identity = request.scope["state"]["identity"]
    return identity


IdentityDep = Annotated[Identity, Depends(identity_of)]


def admin(identity: IdentityDep) -> Identity:
    """Raises ProblemError (403) for anybody but an administrator."""
    if not identity.scope.includes(Scope.ADMIN):
        raise insufficient_scope(identity, Scope.ADMIN)
    return identity


AdminDep = Annotated[Identity, Depends(admin)]


def require_access(
    permissions: Permissions, request: Request, owner: str | None, name: str, unknown: ProblemError
) -> None:
    """Check that the request may read or change the thing called ``name``, by its method.

    Raises ``unknown`` for what must not be read, as if there were no such thing, and ProblemError (403) for what must
    not be changed.
    """
    identity = identity_of(request)
    if not permissions.may_read(identity, owner):
        raise unknown
    if changes_something(request.method, request.url.path) and not permissions.may_change(identity, owner):
        detail = f"{name} belongs to {owner or 'nobody'}, and {identity.person} may change only their own jobs"
        raise ProblemError(403, "not-owner", f"{detail}: ask {owner or 'an administrator'} or an administrator")


_IDEMPOTENCY_KEY = (
    "Makes a retry safe: a key of your choice, up to 200 visible ASCII characters, such as a UUID. A repeated request "
    "with the same key and body creates nothing and returns what the first one created; with another body it is "
    "rejected (422). A key is valid as long as what it created exists"
)


def _scoped_key(
    identity: IdentityDep,
    idempotency_key: Annotated[
        Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]+$", max_length=200)] | None,
        Header(alias="Idempotency-Key", description=_IDEMPOTENCY_KEY),
    ] = None,
) -> str | None:
    """The key as it is stored: keys of one person never return a job of another. Only one may have no prefix."""
    if idempotency_key is None or identity.person == server_user():
        return idempotency_key
    return f"{identity.person} {idempotency_key}"


IdempotencyKey = Annotated[str | None, Depends(_scoped_key)]
