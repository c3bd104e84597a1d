"""Every error as RFC 9457 ``application/problem+json``: what failed, the rule that was broken, and what to do next."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rekindle_service.api.middleware.responses import SECURITY_HEADERS
from rekindle_service.api.validation_errors import field_errors, truncate
from rekindle_service.schemas.fields import ApiModel
from rekindle_service.store import QueueFullError, StorageError
from rekindle_service.submission import BusyError, FieldError, SubmissionError

_log = structlog.get_logger(__name__)

MEDIA_TYPE = "application/problem+json"
PROBLEM_CONTENT: dict[str, Any] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}


class Problem(ApiModel):
    """Body of every error response (RFC 9457)."""

    type: str = Field(examples=["/problems/invalid-request"])
    """Kind of the problem, for programs."""
    title: str = Field(examples=["Unprocessable Content"])
    """Phrase of the HTTP status."""
    status: int
    """HTTP status."""
    detail: str
    """What failed, the rule that was violated, and what to do next, in a sentence."""
    errors: list[FieldError] = Field(default_factory=list)
    """Invalid fields, at most 20; empty for problems that are about no field."""


@dataclass(eq=False)
class ProblemError(Exception):
    """Raised by a route to respond with a problem: ``slug`` names its kind for programs, ``detail`` explains it."""

    status: int
    slug: str
    detail: str
    errors: Sequence[FieldError] = field(default=(), kw_only=True)
    headers: Mapping[str, str] | None = field(default=None, kw_only=True)

    def response(self) -> Response:
        title = HTTPStatus(self.status).phrase
        body = {"type": f"/problems/{self.slug}", "title": title, "status": self.status, "detail": self.detail}
        if self.errors:
            errors = [asdict(replace(error, value=truncate(error.value))) for error in self.errors]
            body = {**body, "errors": errors}
        # ASCII only: a value in it may contain an unpaired surrogate, which UTF-8 cannot encode.
        return Response(json.dumps(body, default=repr).encode(), self.status, self.headers, MEDIA_TYPE)


def invalid_field(name: str, rule: str, value: Any, detail: str, hint: str = "") -> ProblemError:
    """The problem of a request with one invalid field that no schema could find."""
    return ProblemError(422, "invalid-request", detail, errors=[FieldError(name, rule, value, hint)])


RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"description": description, "content": PROBLEM_CONTENT}
    for status, description in {
        400: "The request is malformed, or its Host header does not name this server",
        401: "The token is missing, wrong, revoked or expired",
        403: "The token's scope or owner does not allow this, or the request comes from a page of another site",
        404: "There is no job, attempt, rank or other thing of this id that you may read",
        405: "The path does not support this method; the header `Allow` lists those that it supports",
        408: "The body arrived too slowly: 30 seconds are allowed, and one more for each 16 KiB that have arrived",
        409: "The state of the job does not allow this",
        413: "The body exceeds 10 MiB",
        422: "A field, a parameter or the `Idempotency-Key` is invalid; `errors` lists field, rule, value and hint",
        429: "You send more requests than the setting `request_rate` allows, or the queue is full: retry after the "
        "seconds of `Retry-After`",
        503: "The server is busy or its database is unavailable: retry after the seconds of `Retry-After`",
        507: "The disk is full",
    }.items()
}
"""Error responses that every route of the API may give, for OpenAPI."""


ErrorPage = Callable[[Request, int, str], Response]
"""The page of a status and a sentence, for a browser that shows it to a person."""


def install_problem_handlers(app: FastAPI, error_page: ErrorPage) -> None:
    """Answer with a page where a browser opens another URL than one of the API, with a problem everywhere else."""

    async def respond(request: Request, error: Exception) -> Response:
        problem = _problem_of(request, error)
        if not _is_navigation(request):
            return problem.response()
        is_unknown = isinstance(error, HTTPException) and problem.status == HTTPStatus.NOT_FOUND
        sentence = f"there is no page {request.url.path}" if is_unknown else problem.detail
        page = error_page(request, problem.status, sentence)
        page.headers.update(problem.headers or {})
        return page

    for kind in (
        ProblemError,
        RequestValidationError,
        SubmissionError,
        BusyError,
        QueueFullError,
        StorageError,
        HTTPException,
        Exception,
    ):
        app.exception_handler(kind)(respond)


def _is_navigation(request: Request) -> bool:
    """A person has opened the URL in a browser."""
    is_program = request.url.path.startswith(("/api/", "/static/", "/metrics", "/healthz", "/readyz"))
    return request.method == "GET" and not is_program and "text/html" in request.headers.get("accept", "")


def _problem_of(request: Request, error: Exception) -> ProblemError:
    match error:
        case ProblemError():
            return error
        case RequestValidationError():
            body = getattr(request.scope.get("route"), "body_field", None)
            errors = field_errors(error.errors(), None if body is None else body.field_info.annotation)
            detail = "; ".join(f"{one.field}: {one.rule}" for one in errors[:3])
            return ProblemError(422, "invalid-request", detail, errors=errors)
        case SubmissionError():
            return ProblemError(422, "invalid-request", str(error), errors=error.errors)
        case BusyError():
            return ProblemError(503, "busy", f"{error}: try again", headers={"Retry-After": "10"})
        case QueueFullError():
            return ProblemError(429, "queue-full", str(error), headers={"Retry-After": "60"})
        case StorageError():
            status, slug = (507, "disk-full") if error.full else (503, "storage-unavailable")
            return ProblemError(status, slug, str(error), headers={"Retry-After": "5"})
        case HTTPException():
            return _http_problem(request, error)
        case _:
            _log.error("A request failed", method=request.method, path=request.url.path, exc_info=error)
            detail = "internal server error; the server's log has the traceback"
            return ProblemError(500, "internal-error", detail, headers=SECURITY_HEADERS)


_EXPLAINED = {
    404: ("not-found", "there is no route {method} {path}; /openapi.json lists all routes"),
    405: ("method-not-allowed", "{path} does not support {method}; the Allow header lists the methods it supports"),
}


def _http_problem(request: Request, error: HTTPException) -> ProblemError:
    slug, detail = _EXPLAINED.get(error.status_code, ("http-error", error.detail))
    detail = detail.replace("{method}", request.method).replace("{path}", request.url.path)
    headers = {"Allow": _allowed_methods(request)} if error.status_code == 405 else error.headers
    return ProblemError(error.status_code, slug, detail, headers=headers)


def _allowed_methods(request: Request) -> str:
    """All methods of the path; the framework reports only those of the first route with this path."""
    methods: set[str] = set()
    for route in iter_route_contexts(request.app.routes):
        if route.path_regex.match(request.url.path):
            methods |= route.methods or {"GET", "HEAD"}  # a mount, which serves files
    return ", ".join(sorted(methods))
