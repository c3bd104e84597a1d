"""Every error as RFC 9457 ``application/problem+json``: what was asked, which rule it met, and where to look next."""

import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rekindle_service.api.security_headers import SECURITY_HEADERS
from rekindle_service.api.validation import field_errors

_log = structlog.get_logger(__name__)

MEDIA_TYPE = "application/problem+json"


class FieldProblem(BaseModel):
    """One field that broke one rule."""

    field: str
    rule: str
    value: Any
    hint: str


class Problem(BaseModel):
    """The body of every error answer."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem] = []


class ProblemError(Exception):
    """Raised by a route to answer with a problem; ``slug`` names the kind for programs, ``detail`` tells people."""

    def __init__(
        self,
        status: int,
        slug: str,
        detail: str,
        *,
        errors: Sequence[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.slug = slug
        self.detail = detail
        self.errors = errors
        self.headers = headers


def problem_response(
    status: int,
    slug: str,
    detail: str,
    *,
    errors: Sequence[Mapping[str, Any]] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    body: dict[str, Any] = {
        "type": f"/problems/{slug}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if errors:
        body["errors"] = list(errors)
    # ASCII only: a value that is shown back may hold half a surrogate pair, which UTF-8 cannot carry.
    return Response(json.dumps(body, default=repr).encode(), status, headers, MEDIA_TYPE)


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": description, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for status, description in {
        400: "The request is not HTTP as it should be, or names a host that is not this server",
        401: "No token, or a wrong one",
        403: "A change asked for by a page of another site",
        404: "There is no such thing",
        405: "The route does not take this method",
        409: "The job is in a state in which this cannot be done",
        413: "The body has more than 10 MB",
        416: "The offset or range lies behind the end of the log",
        422: "A field breaks a rule; `errors` tells which",
        503: "The database cannot be used now",
        507: "The disk is full",
    }.items()
}
"""What every route of the API may answer beside its own results, for OpenAPI."""


def install_problem_handlers(app: FastAPI) -> None:
    app.exception_handler(ProblemError)(_on_problem)
    app.exception_handler(RequestValidationError)(_on_invalid)
    app.exception_handler(HTTPException)(_on_http)
    app.exception_handler(Exception)(_on_bug)


async def _on_problem(_: Request, error: ProblemError) -> Response:
    return problem_response(error.status, error.slug, error.detail, errors=error.errors, headers=error.headers)


async def _on_invalid(request: Request, error: RequestValidationError) -> Response:
    body = getattr(request.scope.get("route"), "body_field", None)
    errors = field_errors(error.errors(), None if body is None else body.field_info.annotation)
    detail = "; ".join(f"{one['field']}: {one['rule']}" for one in errors[:3])
    return problem_response(422, "invalid-request", detail, errors=errors)


TOO_LARGE = ("too-large", "a body has at most 10 MB")

_EXPLAINED = {
    404: ("not-found", "{method} {path}: there is no such route; /openapi.json lists them all"),
    405: ("method-not-allowed", "{path} does not take {method}; the Allow header tells what it takes"),
    413: TOO_LARGE,
}


async def _on_http(request: Request, error: HTTPException) -> Response:
    slug, detail = _EXPLAINED.get(error.status_code, ("http-error", error.detail))
    detail = detail.replace("{method}", request.method).replace("{path}", request.url.path)
    headers = {"Allow": _allowed_methods(request)} if error.status_code == 405 else error.headers
    return problem_response(error.status_code, slug, detail, headers=headers)


def _allowed_methods(request: Request) -> str:
    """All methods that the path takes; the framework knows only those of the first route that has the path."""
    methods: set[str] = set()
    for route in iter_route_contexts(request.app.routes):
        if route.path_regex.match(request.url.path):
            methods |= route.methods or {"GET", "HEAD"}  # a mount, which serves files
    return ", ".join(sorted(methods))


async def _on_bug(request: Request, error: Exception) -> Response:
    _log.error("A request failed", method=request.method, path=request.url.path, exc_info=error)
    detail = "this is a fault of rekindle; the server's log has the traceback"
    return problem_response(500, "internal-error", detail, headers=SECURITY_HEADERS)
