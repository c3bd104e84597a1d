"""The web pages, all but the login page in one layout, and Swagger UI, the page on which the API can be tried out."""

import re
from collections.abc import Callable
from http import HTTPStatus
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request, Response
from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup, escape
from starlette.responses import RedirectResponse
from starlette.templating import Jinja2Templates

from rekindle.contract.job_options import job_options
from rekindle_service.api.auth import IdentityDep, address_of, is_same_origin, refuse_wrong_token
from rekindle_service.api.dependencies import AppStateDep, ReadableBy, resolve_job
from rekindle_service.api.problems import ApiError
from rekindle_service.api.static_files import IMMUTABLE, page_files
from rekindle_service.config.home import is_job_id
from rekindle_service.schemas.access_json import Login

_WEB = Path(__file__).parents[1] / "web"
_TEMPLATES = Jinja2Templates(
    env=Environment(
        loader=FileSystemLoader(_WEB / "templates"),
        auto_reload=False,  # a server serves its version, also while another one is being installed
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
)
_TEMPLATES.env.globals.update(
    static_url=page_files().url,
    bundle_url=page_files().bundle_url,
    job_options=lambda *groups: [each for each in job_options() if each.group.name in groups],
    option_table=lambda: [
        {
            "path": each.path,
            "label": each.label,
            "widget": each.widget,
            "flag": each.flag,
            "default": each.default,
            "onlyOurs": each.only_ours,
            "needsCode": each.needs_code,
            "unit": "s" if each.metavar == "SECONDS" else "",
        }
        for each in job_options()
    ],
)
_TEMPLATES.env.filters["code"] = lambda text: Markup(re.sub(r"`(.*?)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704  # nosec B704

_PAGES = {
    "/": "queue.html",
    "/submit": "submit.html",
    "/compare": "compare.html",
    "/machine": "machine.html",
    "/disk": "disk.html",
    "/experiments": "experiments.html",
    "/experiments/{experiment_id}": "experiment.html",
    "/login": "login.html",
}
"""Templates by path. A page reads ids from its URL and gets everything else from the API."""

_WRONG_TOKEN = ApiError(
    401, "unauthorized", "this token is wrong, revoked or expired; `rekindle token` on the server's machine prints one"
)

_SWAGGER_PAGE = "/docs/api"
_SWAGGER_PACKAGE = "fastapi-swagger"
_SWAGGER_FILES = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}

router = APIRouter(include_in_schema=False)


def install_pages(app: FastAPI) -> None:
    app.include_router(router)
    for path, template in _PAGES.items():
        app.get(path, include_in_schema=False)(_page(template))


def prepare_pages(stopping: Callable[[], bool]) -> None:
    """Compile the templates and make the files of all pages, which the first visit after a start would wait for."""
    for name in _TEMPLATES.env.list_templates():
        if stopping():
            return
        _TEMPLATES.env.get_template(name)
    page_files().prepare(stopping)


def _page(template: str) -> Callable[[Request], Response]:
    def page(request: Request) -> Response:
        return render(request, template)

    return page


def render(request: Request, template: str, **context: str) -> Response:
    """A page from its template."""
    return _TEMPLATES.TemplateResponse(request, template, context, headers={"Cache-Control": "private, no-cache"})


def error_page(request: Request, status: int, detail: str) -> Response:
    """What is wrong, as a page."""
    title = "Page not found" if status == 404 else HTTPStatus(status).phrase
    context = {"title": title, "detail": f"{detail[:1].upper()}{detail[1:]}{'' if detail.endswith('?') else '.'}"}
    return _TEMPLATES.TemplateResponse(request, "error.html", context, status_code=status)


@router.get("/jobs")
@router.get("/jobs/")
def shortened_job_url() -> RedirectResponse:
    """The URL of a job without its id leads to the list of jobs."""
    return RedirectResponse("/")


@router.get("/jobs/{reference}")
def job_page(state: AppStateDep, readable_by: ReadableBy, request: Request, reference: str) -> Response:
    """The page of a job by its id; the number of a job leads there. Raises ApiError (404)."""
    if reference.isascii() and reference.isdecimal() and not is_job_id(reference):
        job = resolve_job(state.store, reference, readable_by)
        return RedirectResponse(request.url.replace(path=f"/jobs/{job.id}"))
    return _page("job.html")(request)


@router.post("/login", status_code=204)
def login(state: AppStateDep, request: Request, body: Login) -> Response:
    """Give a session cookie to a browser that sends the token. Raises ApiError (401, 403)."""
    from_browser = "sec-fetch-site" in request.headers or "origin" in request.headers
    if from_browser and not is_same_origin(request.headers):
        raise ApiError(403, "foreign-origin", "a page of another site cannot log in here")
    identity, address = state.access.tokens.identify(body.token.encode(errors="replace")), address_of(request.scope)
    if identity is None:
        raise refuse_wrong_token(state.access, address, _WRONG_TOKEN)
    request.scope["state"]["identity"] = identity
    value, seconds = state.access.sessions.sign_in(identity, address)
    response = Response(status_code=204)
    response.set_cookie(
        state.access.sessions.cookie,
        value,
        max_age=seconds,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@router.post("/logout", status_code=204)
def logout(state: AppStateDep, identity: IdentityDep) -> Response:
    """End the session of this browser."""
    response = Response(status_code=204)
    response.delete_cookie(state.access.sessions.cookie, httponly=True, samesite="strict")
    if identity.session_digest is not None:
        state.access.sessions.sign_out(identity.session_digest)
    return response


@router.get(_SWAGGER_PAGE)
def api_page(request: Request) -> Response:
    """The page on which the API can be tried out; its files have the version of their package in their URLs.

    The Content-Security-Policy is that of every page: Swagger UI needs no inline script and loads nothing from other
    sites. Its requests use the session of the browser.
    """
    return render(request, "api.html", swagger=f"{_SWAGGER_PAGE}/{version(_SWAGGER_PACKAGE)}")


@router.get(f"{_SWAGGER_PAGE}/{{release}}/{{name}}")
def swagger_file(request: Request, release: str, name: str) -> Response:
    """A file of Swagger UI, which a browser keeps. Raises ApiError (404)."""
    if release != version(_SWAGGER_PACKAGE) or name not in _SWAGGER_FILES:
        raise ApiError(404, "not-found", f"Swagger UI of this server has no file {request.url.path}: reload the page")
    content = (files("fastapi_swagger") / "resources" / name).read_bytes()
    return Response(content, media_type=_SWAGGER_FILES[name], headers={"Cache-Control": IMMUTABLE})
