"""People: who you are, tokens, and the audit log."""

import time
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from rekindle.contract import __version__
from rekindle_service.access.permissions import Scope
from rekindle_service.access.tokens import is_valid
from rekindle_service.api.auth import AdminDep, IdentityDep
from rekindle_service.api.dependencies import AppStateDep
from rekindle_service.api.pagination import PageParamsDep, RowPageParamsDep, paginate
from rekindle_service.api.problems import ApiError
from rekindle_service.schemas.access_json import AuditPublic, Me, TokenCreate, TokenCreated, TokenPublic
from rekindle_service.schemas.fields import Page
from rekindle_service.store.tables import AccessToken

router = APIRouter(tags=["access"])


@router.get("/me")
def read_me(state: AppStateDep, identity: IdentityDep) -> Me:
    """Get who you are for this server, and what you may do."""
    private_jobs = state.access.permissions.private_jobs
    return Me.model_validate({**asdict(identity), "private_jobs": private_jobs, "version": __version__})


@router.get("/tokens")
def list_tokens(state: AppStateDep, identity: IdentityDep, params: PageParamsDep) -> Page[TokenPublic]:
    """List the tokens of all people, oldest first, for administrators; your own for others. Secrets are not stored."""
    person = None if identity.scope.includes(Scope.ADMIN) else identity.person
    return paginate(state.access.tokens.all(person), params).map(_public)


@router.post("/tokens", status_code=201)
def create_token(
    state: AppStateDep, identity: AdminDep, request: Request, response: Response, body: TokenCreate
) -> TokenCreated:
    """Create a token for a person. Its secret is in the response and never shown again. Administrators only."""
    new = state.access.tokens.create(body.person, body.scope, identity.person, seconds=body.expires_in, note=body.note)
    request.scope["state"]["audit_detail"] = f"token {new.row.id} for {body.person}, scope {body.scope}"
    response.headers["Location"] = f"/api/v1/tokens/{new.row.id}"
    return TokenCreated(**dict(_public(new.row)), token=new.secret)


@router.delete("/tokens/{token_id}", status_code=204)
def revoke_token(
    state: AppStateDep,
    identity: IdentityDep,
    request: Request,
    token_id: Annotated[str, Path(max_length=64, description="Id of the token")],
) -> None:
    """Revoke a token: it and the browsers that have signed in with it end now. Your own, or as an administrator any."""
    row = next((row for row in state.access.tokens.all() if row.id == token_id), None)
    if row is None or not (identity.scope.includes(Scope.ADMIN) or row.person == identity.person):
        raise ApiError(404, "unknown-token", f"there is no token {token_id!r}; GET /api/v1/tokens lists all tokens")
    request.scope["state"]["audit_detail"] = f"token {row.id} of {row.person}"
    state.access.tokens.revoke(row.id)


@router.get("/audit")
def list_audit(
    state: AppStateDep,
    identity: AdminDep,
    params: RowPageParamsDep,
    person: Annotated[str | None, Query(max_length=64, description="Only this person")] = None,
) -> Page[AuditPublic]:
    """List who changed what from where, and whose requests were refused, latest first. Administrators only."""
    state.access.audit.flush()
    rows = state.store.access.audit(params.limit + 1, before=params.cursor, person=person)
    shown = [AuditPublic.model_validate(row) for row in rows[: params.limit]]
    return Page(items=shown, next=str(shown[-1].id) if len(rows) > params.limit else None)


def _public(row: AccessToken) -> TokenPublic:
    return TokenPublic(**row.model_dump(exclude={"digest"}), valid=is_valid(row, time.time()))
