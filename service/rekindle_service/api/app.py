"""The HTTP application: routes, error handlers and middleware."""

from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from rekindle_service.api.dependencies import AppState
from rekindle_service.api.middleware.auth import AuthMiddleware
from rekindle_service.api.middleware.compression import CompressionMiddleware
from rekindle_service.api.middleware.request_body import RequestBodyMiddleware
from rekindle_service.api.middleware.responses import ClientDisconnectMiddleware, SecurityHeadersMiddleware
from rekindle_service.api.middleware.trusted_host import TrustedHostMiddleware
from rekindle_service.api.problem_details import RESPONSES, Problem, install_problem_handlers
from rekindle_service.api.problem_types import PROBLEM_TYPES
from rekindle_service.api.query_params import STRICT_QUERY
from rekindle_service.api.resource_errors import install_resource_handlers
from rekindle_service.api.routes import (
    access,
    api_page,
    attempts,
    bundles,
    disk,
    environment,
    events,
    experiments,
    job_queue,
    jobs,
    log_lines,
    logs,
    machine,
    metrics,
    monitoring,
    overview,
    ranks,
    recipes,
    snapshots,
    story,
)
from rekindle_service.api.routes.pages import error_page, install_pages
from rekindle_service.api.static_files import page_files
from rekindle_service.loading import PARSING

_MODULES = (
    jobs,
    job_queue,
    overview,
    attempts,
    story,
    ranks,
    logs,
    log_lines,
    metrics,
    snapshots,
    environment,
    bundles,
    recipes,
    experiments,
    machine,
    disk,
    events,
    access,
)
API_ROUTERS: tuple[APIRouter, ...] = tuple(module.router for module in _MODULES)


def create_app(state: AppState) -> FastAPI:
    """Starts nothing; the caller closes the parts of ``state``."""
    app = FastAPI(
        title="rekindle",
        version=version("rekindle"),
        description="A fault-tolerant job service for torchrun.",
        docs_url=None,  # its page loads scripts from other sites: see ``routes.api_page``
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.rekindle = state
    app.mount("/static", page_files())  # first: each page loads some, and the router tries one route after the other
    for router in API_ROUTERS:
        app.include_router(
            router, prefix="/api/v1", dependencies=[monitoring.BEARER, STRICT_QUERY], responses=RESPONSES
        )
    app.include_router(monitoring.router, dependencies=[STRICT_QUERY])
    install_pages(app)
    app.include_router(api_page.router)
    install_problem_handlers(app, error_page)
    install_resource_handlers(app)
    app.add_middleware(ClientDisconnectMiddleware)
    app.add_middleware(CompressionMiddleware)
    app.add_middleware(RequestBodyMiddleware, streamed=(f"/api/v1{bundles.PATH}",))
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
            problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            problem["properties"]["type"]["enum"] = [f"/problems/{name}" for name in PROBLEM_TYPES]
            schema["components"]["schemas"].update(problem.pop("$defs"), Problem=problem)
            app.openapi_schema = schema
    return app.openapi_schema
