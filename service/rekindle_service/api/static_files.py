"""The files that pages load: kept in memory, compressed, and under names that change with their content.

A page names its files below ``/static/<digest>/``, where the digest is that of all files together. Such a name never
gets other content, so a browser keeps the file without asking again. Below ``bundle/`` each file comes with all that it
imports, see ``page_bundles``: a page loads one file of modules and one of styles, however many there are. Each file is
also at ``/static/<path>``, where a browser asks whether it has changed.
"""

import gzip
import hashlib
import mimetypes
import re
from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rekindle_service.api.middleware.compression import accepts_gzip
from rekindle_service.api.page_bundles import bundle

_ROOT = Path(__file__).parents[1] / "web" / "static"
_MOUNT = "/static"
_SOURCES = frozenset({".js", ".css", ".svg"})
_BUNDLES = "bundle"
_ENTRIES = ("-page.js", "-worker.js", ".css")
"""Ends of the names of the files that pages load as bundles."""
_DIGEST = re.compile(r"^[0-9a-f]{16}/")
_IMMUTABLE = "private, max-age=31536000, immutable"
_REVALIDATED = "private, no-cache"


class StaticFile:
    """The content of one file, and what identifies it."""

    def __init__(self, path: str, content: bytes) -> None:
        self.content = content
        self.media_type = mimetypes.guess_type(path)[0] or "application/octet-stream"
        self.etag = f'W/"{hashlib.sha256(content).hexdigest()[:32]}"'  # weak: the same compressed or not

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.content, mtime=0)


class StaticFiles:
    """An ASGI application that serves the files below a directory as they were when it was created."""

    def __init__(self, root: Path) -> None:
        paths = sorted(path for path in root.rglob("*") if path.suffix in _SOURCES)
        self._files = {path.relative_to(root).as_posix(): StaticFile(path.name, path.read_bytes()) for path in paths}
        contents = hashlib.sha256()
        for path, file in self._files.items():
            contents.update(f"{path} {file.etag}\n".encode())
        self.digest = contents.hexdigest()[:16]

    def url(self, path: str) -> str:
        """Where a browser keeps this file. Raises KeyError where there is none."""
        self._files[path]
        return f"{_MOUNT}/{self.digest}/{path}"

    def bundle_url(self, path: str) -> str:
        """Where a browser keeps this file together with all that it imports. Raises KeyError where there is none."""
        self._files[path]
        return f"{_MOUNT}/{self.digest}/{_BUNDLES}/{path}"

    def prepare(self, stopping: Callable[[], bool]) -> None:
        """Make and compress the bundles of all pages, which the first visit would wait for."""
        for path in self._files:
            if stopping():
                return
            if path.endswith(_ENTRIES):
                self._bundle(path).compressed  # noqa: B018  # kept from now on

    def _find(self, path: str) -> StaticFile | None:
        directory, _, entry = path.partition("/")
        is_bundle = directory == _BUNDLES and entry in self._files and not entry.endswith(".svg")
        return self._bundle(entry) if is_bundle else self._files.get(path)

    @cache  # noqa: B019  # one instance, as long as the process; as many paths as there are files
    def _bundle(self, path: str) -> StaticFile:
        sources = {name: file.content.decode() for name, file in self._files.items()}
        return StaticFile(path, bundle(path, sources, _BUNDLES).encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        path = scope["path"].removeprefix(scope["root_path"]).removeprefix("/")
        file = self._find(_DIGEST.sub("", path))
        if file is None:
            raise HTTPException(404)
        is_immutable = path.startswith(f"{self.digest}/")
        await _response(file, Headers(scope=scope), is_immutable=is_immutable)(scope, receive, send)


def _response(file: StaticFile, request: Headers, *, is_immutable: bool) -> Response:
    """A page of another version of rekindle gets the file of this one, but does not keep it."""
    headers = {
        "Cache-Control": _IMMUTABLE if is_immutable else _REVALIDATED,
        "ETag": file.etag,
        "Vary": "Accept-Encoding",
    }
    if file.etag in [tag.strip() for tag in request.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=headers)
    if not accepts_gzip(request):
        return Response(file.content, media_type=file.media_type, headers=headers)
    return Response(file.compressed, media_type=file.media_type, headers={**headers, "Content-Encoding": "gzip"})


@cache
def page_files() -> StaticFiles:
    """The files of the pages of rekindle."""
    return StaticFiles(_ROOT)
