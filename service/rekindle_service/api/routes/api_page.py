"""The page on which the routes of the API can be read and tried out: Swagger UI, from an installed package.

The page and its files are for people who have signed in, like all others, and their requests use that session. The
Content-Security-Policy is that of every page: Swagger UI needs no inline script and loads nothing from other sites.
"""

import gzip
from functools import cache
from importlib.metadata import version
from importlib.resources import files

from fastapi import APIRouter, Request, Response

from rekindle_service.api.middleware.compression import accepts_gzip
from rekindle_service.api.problem_details import ProblemError
from rekindle_service.api.routes.pages import render

PATH = "/docs/api"

_PACKAGE = "fastapi-swagger"
_FILES = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}
_IMMUTABLE = "private, max-age=31536000, immutable"

router = APIRouter(include_in_schema=False)


@router.get(PATH)
def api_page(request: Request) -> Response:
    """The page; its files have the version of the package in their URLs."""
    return render(request, "api.html", swagger=f"{PATH}/{version(_PACKAGE)}")


@router.get(f"{PATH}/{{release}}/{{name}}")
def swagger_file(request: Request, release: str, name: str) -> Response:
    """A file of Swagger UI, which a browser keeps. Raises ProblemError (404)."""
    if release != version(_PACKAGE) or name not in _FILES:
        raise ProblemError(
            404, "not-found", f"Swagger UI of this server has no file {request.url.path}: reload the page"
        )
    headers = {"Cache-Control": _IMMUTABLE, "Vary": "Accept-Encoding"}
    content = _compressed(name)
    if accepts_gzip(request.headers):
        return Response(content, media_type=_FILES[name], headers={**headers, "Content-Encoding": "gzip"})
    return Response(gzip.decompress(content), media_type=_FILES[name], headers=headers)


@cache
def _compressed(name: str) -> bytes:
    """1.7 MB become 0.5 MB; only a server whose people open the page keeps them in memory."""
    return gzip.compress((files("fastapi_swagger") / "resources" / name).read_bytes(), mtime=0)
