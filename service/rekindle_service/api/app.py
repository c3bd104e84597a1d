"""The application: routes, error answers, and the guards around them."""

from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.security import HTTPBearer
from starlette.responses import Response

from rekindle_service.api import (
    bundles,
    chaos,
    configuration,
    devices,
    downloads,
    event_stream,
    experiments,
    health,
    job_time,
    jobs,
    log_search,
    machine,
    prometheus,
    ranks,
    recipes,
    records,
    snapshots,
    summary,
    usage,
)
from rekindle_service.api.access import Access
from rekindle_service.api.body_limit import BodyLimit
from rekindle_service.api.departures import Departures
from rekindle_service.api.host_check import HostCheck
from rekindle_service.api.pages import install_pages
from rekindle_service.api.problems import (
    RESPONSES,
    Problem,
    install_problem_handlers,
    problem_response,
)
from rekindle_service.api.security_headers import SecurityHeaders
from rekindle_service.api.services import Services
from rekindle_service.api.validation import shown
from rekindle_service.jobs.submission import SubmissionError
from rekindle_service.store import StorageError

MOST_BODY_BYTES = 10 << 20

API_ROUTERS = (
    jobs.router,
    summary.router,
    ranks.router,
    usage.router,
    log_search.router,
    downloads.router,
    chaos.router,
    records.router,
    job_time.router,
    snapshots.router,
    configuration.router,
    bundles.router,
    recipes.router,
    experiments.router,
    devices.router,
    machine.router,
    event_stream.router,
)


def create_app(services: Services) -> FastAPI:
    """The whole HTTP face. Starts nothing; ``services`` are the caller's to close."""
    app = FastAPI(
        title="rekindle",
        version=version("rekindle"),
        description="A fault-tolerant job service for torchrun.",
        docs_url=None,  # its page loads scripts from elsewhere, which our Content-Security-Policy forbids
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    bearer = Depends(HTTPBearer(auto_error=False, description="The token of `rekindle token`"))
    for router in API_ROUTERS:
        app.include_router(router, prefix="/api/v1", dependencies=[bearer], responses=RESPONSES)
    app.include_router(health.router)
    app.include_router(prometheus.router, dependencies=[bearer], responses=RESPONSES)
    install_pages(app)
    install_problem_handlers(app)
    app.exception_handler(StorageError)(_on_storage_error)
    app.exception_handler(SubmissionError)(_on_submission_error)
    app.add_middleware(Departures)
    app.add_middleware(BodyLimit, limit=MOST_BODY_BYTES, exempt=(f"/api/v1{bundles.PATH}",))
    app.add_middleware(Access, credentials=services.credentials)
    app.add_middleware(HostCheck, host=services.host)
    app.add_middleware(SecurityHeaders)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]  # FastAPI's documented way to extend it
    return app


async def _on_storage_error(_: Request, error: StorageError) -> Response:
    """The database cannot be used now: the client may try again later."""
    status, slug = (507, "disk-full") if error.full else (503, "storage-unavailable")
    return problem_response(status, slug, str(error), headers={"Retry-After": "5"})


async def _on_submission_error(_: Request, error: SubmissionError) -> Response:
    errors = [{**asdict(one), "value": shown(one.value)} for one in error.errors]
    return problem_response(422, "invalid-request", str(error), errors=errors)


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        schema["components"]["schemas"].update(problem.pop("$defs"), Problem=problem)
        app.openapi_schema = schema
    return app.openapi_schema
