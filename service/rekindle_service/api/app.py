"""The HTTP application: routes, error handlers and middleware."""

from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.dependencies.utils import get_flat_params
from fastapi.openapi.utils import get_openapi
from fastapi.params import Query
from fastapi.routing import APIRoute
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from rekindle.contract import __version__
from rekindle_service.api.auth import AuthMiddleware
from rekindle_service.api.dependencies import AppState
from rekindle_service.api.middleware import (
    ClientDisconnectMiddleware,
    SecurityHeadersMiddleware,
    TrustedHostMiddleware,
)
from rekindle_service.api.pages import error_page, install_pages
from rekindle_service.api.problem_types import PROBLEM_TYPES
from rekindle_service.api.problems import MAX_ERRORS, RESPONSES, ApiError, ProblemBody, install_problem_handlers
from rekindle_service.api.request_body import RequestBodyMiddleware
from rekindle_service.api.routes import (
    access_routes,
    code_routes,
    digest_routes,
    disk_routes,
    event_routes,
    experiment_routes,
    history_routes,
    job_routes,
    log_routes,
    machine_routes,
    merged_log_routes,
    monitoring,
    queue_routes,
    rank_routes,
    snapshot_routes,
)
from rekindle_service.api.static_files import page_files
from rekindle_service.loading import PARSING
from rekindle_service.submission import FieldError
from rekindle_service.suggestions import did_you_mean

API_ROUTERS: tuple[APIRouter, ...] = (
    job_routes.router,
    queue_routes.router,
    history_routes.router,
    rank_routes.router,
    log_routes.router,
    merged_log_routes.router,
    snapshot_routes.router,
    code_routes.router,
    digest_routes.router,
    experiment_routes.router,
    machine_routes.router,
    disk_routes.router,
    event_routes.router,
    access_routes.router,
)

_NOT_COMPRESSED = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "text/plain", "application/octet-stream")
"""Streams, logs and downloads: a client counts their bytes."""


async def _reject_unknown(request: Request) -> None:
    """Raise ApiError (422) for a query parameter that the route does not have: it may be misspelt."""
    if not request.query_params:
        return
    known = _known(request.scope["route"])
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        listed = f"known are: {', '.join(known)}" if known else "this route has none"
        errors = [
            FieldError(name, "unknown query parameter", request.query_params[name], did_you_mean(name, known) or listed)
            for name in unknown[:MAX_ERRORS]
        ]
        detail = f"{request.method} {request.url.path} has no query parameter {unknown[0][:100]!r}; {listed}"
        raise ApiError(422, "invalid-request", detail, errors=errors)


def _known(route: APIRoute) -> list[str]:
    """The names of the query parameters that a route and its dependencies declare."""
    return [field.alias for field in get_flat_params(route.dependant) if isinstance(field.field_info, Query)]


_STRICT_QUERY = Depends(_reject_unknown)


def create_app(state: AppState) -> FastAPI:
    """Make the application. It starts nothing; the caller closes the parts of ``state``."""
    app = FastAPI(
        title="rekindle",
        version=__version__,
        description="A fault-tolerant job service for torchrun.",
        docs_url=None,  # its page loads scripts from other sites: see ``pages.api_page``
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.rekindle = state
    app.mount("/static", page_files())  # first: each page loads some, and the router tries one route after the other
    for router in API_ROUTERS:
        app.include_router(
            router, prefix="/api/v1", dependencies=[monitoring.BEARER, _STRICT_QUERY], responses=RESPONSES
        )
    app.include_router(monitoring.router, dependencies=[_STRICT_QUERY])
    install_pages(app)
    install_problem_handlers(app, error_page)
    app.add_middleware(ClientDisconnectMiddleware)
    app.add_middleware(
        GZipMiddleware,
        minimum_size=1000,  # bytes; a smaller response fits one packet anyway
        compresslevel=5,
        thread_minimum_size=64_000,  # bytes; more takes milliseconds, in which the event loop would serve nobody else
        exclude_content_types=_NOT_COMPRESSED,
    )
    app.add_middleware(RequestBodyMiddleware, streamed=(f"/api/v1{code_routes.BUNDLES_PATH}",))
    app.add_middleware(AuthMiddleware, access=state.access)
    app.add_middleware(TrustedHostMiddleware, host=state.host, public_host=state.public_host)
    app.add_middleware(SecurityHeadersMiddleware)
    if state.public_host is not None:  # then requests from loopback come from a reverse proxy, which names the client
        app.add_middleware(ProxyHeadersMiddleware, trusted_hosts=["127.0.0.1", "::1"])
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]  # FastAPI's documented way to extend it
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    with PARSING:  # pydantic reads the source of types
        if app.openapi_schema is None:
            schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            problem = ProblemBody.model_json_schema(ref_template="#/components/schemas/{model}")
            problem["properties"]["type"]["enum"] = [f"/problems/{name}" for name in PROBLEM_TYPES]
            schema["components"]["schemas"].update(problem.pop("$defs"), Problem=problem)
            app.openapi_schema = schema
    return app.openapi_schema
