"""Every error as RFC 9457 ``application/problem+json``: what failed, the rule that was broken, and what to do next."""

import errno
import json
import re
import reprlib
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import iter_route_contexts
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo
from starlette.exceptions import HTTPException
from starlette.responses import Response

from rekindle_service.schemas.fields import ApiModel
from rekindle_service.store import QueueFullError, StorageError
from rekindle_service.submission import LACKING, BusyError, FieldError, SubmissionError, hide_secrets
from rekindle_service.suggestions import closest, did_you_mean, rule_of

_log = structlog.get_logger(__name__)

MEDIA_TYPE = "application/problem+json"
PROBLEM_CONTENT: dict[str, Any] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}

SECURITY_HEADERS = {
    # Scripts come from this server alone.
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "worker-src 'self' blob:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""Headers of every response, which ``SecurityHeadersMiddleware`` adds where no handler of last resort has to."""

MAX_ERRORS = 20
_MAX_VALUE_LENGTH = 200  # characters of an invalid value in a response
_CHOICE = re.compile(r"'([^']*)'")
_NO_FIELDS = frozenset({"[key]", "[value]", "[source]"})  # parts of a location that no request has
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_RETRY = {"Retry-After": "5"}


class ProblemBody(ApiModel):
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
class ApiError(Exception):
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


def invalid_field(name: str, rule: str, value: Any, detail: str, hint: str = "") -> ApiError:
    """The problem of a request with one invalid field that no schema could find."""
    return ApiError(422, "invalid-request", detail, errors=[FieldError(name, rule, value, hint)])


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
        ApiError,
        RequestValidationError,
        SubmissionError,
        BusyError,
        QueueFullError,
        StorageError,
        HTTPException,
        OSError,
        MemoryError,
        RuntimeError,
        Exception,
    ):
        app.exception_handler(kind)(respond)


def _is_navigation(request: Request) -> bool:
    """A person has opened the URL in a browser."""
    is_program = request.url.path.startswith(("/api/", "/static/", "/metrics", "/healthz", "/readyz"))
    return request.method == "GET" and not is_program and "text/html" in request.headers.get("accept", "")


def _problem_of(request: Request, error: Exception) -> ApiError:
    match error:
        case ApiError():
            return error
        case RequestValidationError():
            body = getattr(request.scope.get("route"), "body_field", None)
            errors = field_errors(error.errors(), None if body is None else body.field_info.annotation)
            detail = "; ".join(f"{one.field}: {one.rule}" for one in errors[:3])
            return ApiError(422, "invalid-request", detail, errors=errors)
        case SubmissionError():
            return ApiError(422, "invalid-request", str(error), errors=error.errors)
        case BusyError():
            return ApiError(503, "busy", f"{error}: try again", headers={"Retry-After": "10"})
        case QueueFullError():
            return ApiError(429, "queue-full", str(error), headers={"Retry-After": "60"})
        case StorageError():
            status, slug = (507, "disk-full") if error.full else (503, "storage-unavailable")
            return ApiError(status, slug, str(error), headers={"Retry-After": "5"})
        case HTTPException():
            return _http_problem(request, error)
        case _ if (problem := _lacking(error)) is not None:
            _log.warning("A request was refused", method=request.method, path=request.url.path, error=str(error))
            return problem
        case _:
            _log.error("A request failed", method=request.method, path=request.url.path, exc_info=error)
            detail = "internal server error; the server's log has the traceback"
            return ApiError(500, "internal-error", detail, headers=SECURITY_HEADERS)


_EXPLAINED = {
    404: ("not-found", "there is no route {method} {path}; /openapi.json lists all routes"),
    405: ("method-not-allowed", "{path} does not support {method}; the Allow header lists the methods it supports"),
}


def _http_problem(request: Request, error: HTTPException) -> ApiError:
    slug, detail = _EXPLAINED.get(error.status_code, ("http-error", error.detail))
    detail = detail.replace("{method}", request.method).replace("{path}", request.url.path)
    headers = {"Allow": _allowed_methods(request)} if error.status_code == 405 else error.headers
    return ApiError(error.status_code, slug, detail, headers=headers)


def _lacking(error: Exception) -> ApiError | None:
    """The problem where the machine lacks something now and may have it later; None for any other error."""
    number = error.errno if isinstance(error, OSError) else None
    if number in _FULL:
        return ApiError(507, "disk-full", f"the disk is full ({error}): free some space", headers=_RETRY)
    if isinstance(error, MemoryError):
        number = errno.ENOMEM
    elif isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        number = errno.EAGAIN
    lacking = LACKING.get(number or 0)
    if lacking is None:
        return None
    return ApiError(503, "busy", f"the server has too few {lacking} now: try again in a moment", headers=_RETRY)


def _allowed_methods(request: Request) -> str:
    """All methods of the path; the framework reports only those of the first route with this path."""
    methods: set[str] = set()
    for route in iter_route_contexts(request.app.routes):
        if route.path_regex.match(request.url.path):
            methods |= route.methods or {"GET", "HEAD"}  # a mount, which serves files
    return ", ".join(sorted(methods))


def field_errors(errors: Sequence[Mapping[str, Any]], body: Any = None) -> list[FieldError]:
    """One entry per broken rule, at most 20. ``body`` is the type that the request body should have."""
    return [
        FieldError(
            _field_name(error["loc"]),
            _rule(error),
            hide_secrets(error.get("input"), tuple(error["loc"])),
            _hint(error, body),
        )
        for error in errors[:MAX_ERRORS]
    ]


def _field_name(location: Sequence[int | str]) -> str:
    """``ranks.max`` for ``("body", "ranks", "max")``, and ``body`` for the body itself."""
    parts = [str(part) for part in location if part not in _NO_FIELDS]
    if parts[0] in ("body", "query", "path", "header", "cookie") and len(parts) > 1:
        parts = parts[1:]
    return ".".join(parts)


def _rule(error: Mapping[str, Any]) -> str:
    match error["type"]:
        case "extra_forbidden":
            return "unknown field"
        case "missing":
            return "is required"
        case "json_invalid":
            return f"must be valid JSON: {(error.get('ctx') or {}).get('error', 'cannot be parsed')}"
        case "model_attributes_type":
            return "must be a JSON object, sent as application/json"
        case _:
            return rule_of(str(error["msg"]))


def _hint(error: Mapping[str, Any], body: Any) -> str:
    *parents, name = [part for part in error["loc"][1:] if part not in _NO_FIELDS] or [""]
    fields = _fields(body if error["loc"][0] == "body" else None, parents)
    if error["type"] == "extra_forbidden":
        return did_you_mean(str(name), list(fields))
    hint = (error.get("ctx") or {}).get("hint")
    if hint is None and error["type"] in ("enum", "literal_error"):
        hint = _nearest_choice(error)
    return str(hint) if hint is not None else _default_hint(fields.get(str(name)))


def _nearest_choice(error: Mapping[str, Any]) -> str | None:
    """None where no choice is like the value: the rule lists all of them."""
    near = closest(str(error.get("input"))[:_MAX_VALUE_LENGTH], _CHOICE.findall(error["ctx"]["expected"]))
    return f"did you mean {' or '.join(map(repr, near))}?" if near else None


def _default_hint(field: FieldInfo | None) -> str:
    """What omitting a field means, where it may be omitted."""
    if field is None or field.is_required():
        return ""
    default = field.get_default()
    return "omit it" + ("" if default is None else f" for the default, {json.dumps(default, default=str)}")


def _fields(annotation: Any, parents: Sequence[int | str]) -> Mapping[str, FieldInfo]:
    """The fields of the model at the key path ``parents`` of ``annotation``, by their names in JSON."""
    model = _model_in(annotation)
    fields = {} if model is None else {field.alias or name: field for name, field in model.model_fields.items()}
    if not parents:
        return fields
    field = fields.get(str(parents[0]))  # else an index of a list, or a key of an object without fixed fields
    return _fields(annotation if field is None else field.annotation, parents[1:])


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that ``annotation`` is or contains, as in ``Model | None`` and ``list[Model]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in typing.get_args(annotation) if (model := _model_in(part)) is not None), None)


def truncate(value: Any) -> Any:
    """An invalid value as a response shows it: unchanged when small and plain, else its beginning."""
    if isinstance(value, str):
        return value if len(value) <= _MAX_VALUE_LENGTH else value[:_MAX_VALUE_LENGTH] + "…"
    return value if value is None or (isinstance(value, int) and abs(value) < 1 << 63) else reprlib.repr(value)
