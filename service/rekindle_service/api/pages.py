"""The pages: a document for each, all but the sign-in in one layout, and the files they load."""

from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request, Response
from jinja2 import Environment, FileSystemLoader
from starlette.responses import RedirectResponse
from starlette.staticfiles import StaticFiles
from starlette.templating import Jinja2Templates
from starlette.types import Scope

from rekindle_service.api.access import is_same_origin
from rekindle_service.api.problems import ProblemError
from rekindle_service.api.request_schemas import Login
from rekindle_service.api.services import Serving

_WEB = Path(__file__).parent.parent / "web"
_TEMPLATES = Jinja2Templates(
    env=Environment(
        loader=FileSystemLoader(_WEB / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
)

_SESSION_SECONDS = 30 * 24 * 3600

router = APIRouter(include_in_schema=False)


def install_pages(app: FastAPI) -> None:
    app.include_router(router)
    app.mount("/static", _Files(directory=_WEB / "static"))


class _Files(StaticFiles):
    """Files that a browser caches but revalidates each time, so that an upgrade shows at once (ETag, 304)."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Cache-Control"] = "private, no-cache"
        return response


@router.get("/")
def job_list_page(request: Request) -> Response:
    return _page(request, "queue.html")


@router.get("/jobs")
@router.get("/jobs/")
def shortened_job_url() -> RedirectResponse:
    """What remains of a job's URL without the job."""
    return RedirectResponse("/")


@router.get("/jobs/{job_id}")
def job_page(request: Request, job_id: str) -> Response:
    """The page itself reads the id from its URL, and asks the API whether there is such a job."""
    return _page(request, "job.html")


@router.get("/submit")
def submit_page(request: Request) -> Response:
    return _page(request, "submit.html")


@router.get("/compare")
def compare_page(request: Request) -> Response:
    """The page itself reads from its URL which jobs to compare."""
    return _page(request, "compare.html")


@router.get("/machine")
def machine_page(request: Request) -> Response:
    return _page(request, "machine.html")


@router.get("/experiments")
def experiment_list_page(request: Request) -> Response:
    return _page(request, "experiments.html")


@router.get("/experiments/{experiment_id}")
def experiment_page(request: Request, experiment_id: str) -> Response:
    """As with a job, the page itself finds out whether there is such an experiment."""
    return _page(request, "experiment.html")


@router.get("/login")
def login_page(request: Request) -> Response:
    return _page(request, "login.html")


@router.post("/login", status_code=204)
def login(services: Serving, request: Request, body: Login) -> Response:
    """Give the browser that knows the token a session cookie. Raises ProblemError (401, 403)."""
    if not is_same_origin(request.headers) and _from_browser(request):
        raise ProblemError(403, "foreign-origin", "a page of another site may not log in here")
    if not services.credentials.is_token(body.token.encode()):
        raise ProblemError(401, "unauthorized", "that is not this server's token; `rekindle token` prints it")
    response = Response(status_code=204)
    response.set_cookie(
        services.credentials.cookie,
        services.credentials.session,
        max_age=_SESSION_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@router.get("/static/vendor/plotly.min.js")
async def plotly_script(request: Request) -> Response:
    """The script that the installed plotly package carries; importing plotly for its path would take a second."""
    spec = find_spec("plotly")
    if spec is None or spec.origin is None:
        raise ProblemError(404, "not-found", "plotly is not installed with this server")
    files = _Files(directory=Path(spec.origin).parent / "package_data")
    return await files.get_response("plotly.min.js", request.scope)


def _page(request: Request, name: str) -> Response:
    return _TEMPLATES.TemplateResponse(request, name, headers={"Cache-Control": "private, no-cache"})


def _from_browser(request: Request) -> bool:
    return "sec-fetch-site" in request.headers or "origin" in request.headers
