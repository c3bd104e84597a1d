"""The files that pages load: kept in memory, compressed, and under names that change with their content.

A page names its files below ``/static/<digest>/``, where the digest is that of all files together. Such a name never
gets other content, so a browser keeps the file without asking again. Below ``bundle/`` each file comes with all that it
imports: a page loads one file of modules and one of styles, however many there are. Each file is also at
``/static/<path>``, where a browser asks whether it has changed.

A bundle needs no parser, because the modules keep to one form: ``import { … } from "…";`` or ``import "…";``, and
``export`` before a function, class or constant that is declared at the beginning of a line. Each module becomes a
function that runs once and returns what the module exports; its imports become constants. Whatever else begins with
``import`` or ``export`` is rejected. Lines that have only a comment are omitted, so no line of a template may look
like one. The first file, which nothing imports, becomes a block: it may wait at its top level. One that exports
something is loaded on demand, by ``import(new URL("…", import.meta.url).href)``.
"""

import gzip
import hashlib
import json
import mimetypes
import posixpath
import re
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

SEPARATE_MODULES = frozenset({"shared/theme.js"})
"""Modules that a page loads before its bundle; the bundle imports them, so that they run once."""

_IMPORT = re.compile(r'^import (?:\{([^}]*)\} from )?"(\.{1,2}/[^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*(?:/\*(?:[^*]|\*(?!/))*\*/|//.*)\n", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)
_STYLE_IMPORT = re.compile(r'^@import "(\.{1,2}/[^"]+)";\n', re.MULTILINE)

IMMUTABLE = "private, max-age=31536000, immutable"
"""``Cache-Control`` of a URL that never gets other content."""

_ROOT = Path(__file__).parents[1] / "web" / "static"
_MOUNT = "/static"
_SOURCES = frozenset({".js", ".css", ".svg"})
_BUNDLES = "bundle"
_ENTRIES = ("-page.js", "-worker.js", ".css")
"""Ends of the names of the files that pages load as bundles."""
_DIGEST = re.compile(r"^[0-9a-f]{16}/")
_REVALIDATED = "private, no-cache"


class BundleError(Exception):
    """A file that cannot be part of a bundle: what is wrong with it, and where."""


def bundle(path: str, files: Mapping[str, str], directory: str) -> str:
    """The content of ``path`` with all it imports, to be served as ``directory/path``.

    ``files`` are all contents by path. Raises BundleError where an import leads nowhere or in a circle.
    """
    imports = _STYLE_IMPORT if path.endswith(".css") else _IMPORT
    ordered = _in_order(path, files, imports)
    if path.endswith(".css"):
        return "".join(f"/* {each} */\n{_STYLE_IMPORT.sub('', files[each])}" for each in ordered)
    names = {each: f"module{number}" for number, each in enumerate(ordered)}
    here = posixpath.dirname(f"{directory}/{path}")
    imported = [
        f"import * as {names[each]} from {json.dumps(posixpath.relpath(each, here))};\n"
        for each in ordered
        if each in SEPARATE_MODULES
    ]
    urls = {each: posixpath.relpath(f"{directory}/{each}", here) for each in ordered}
    functions = [
        _function(each, files[each], names, urls[each]) for each in ordered[:-1] if each not in SEPARATE_MODULES
    ]
    exported = _EXPORT.search(files[path]) and f"export const {_return(files[path])[7:-2]} = {names[path]};\n"
    entry = (
        _function(path, files[path], names, urls[path])
        if exported
        else f"{{\n{_body(path, files[path], names, urls[path])}}}\n"
    )
    return "".join([*imported, *functions, entry, exported or ""])


def _in_order(path: str, files: Mapping[str, str], imports: re.Pattern[str]) -> list[str]:
    """The file and all that it imports, each after those which it imports, as a browser runs them."""
    ordered: list[str] = []
    _visit(path, files, imports, ordered, ())
    return ordered


def _visit(
    path: str, files: Mapping[str, str], imports: re.Pattern[str], ordered: list[str], above: tuple[str, ...]
) -> None:
    if path in above:
        raise BundleError(f"{' imports '.join([*above[above.index(path) :], path])}: imports must not form a circle")
    if path not in files:
        raise BundleError(f"{above[-1] if above else 'a page'} imports {path}, which does not exist")
    if path in ordered:
        return
    for match in imports.finditer(files[path]):
        _visit(_resolved(path, match[match.re.groups]), files, imports, ordered, (*above, path))
    ordered.append(path)


def _body(path: str, source: str, names: Mapping[str, str], url: str) -> str:
    """What a module's function has; ``url``: of the bundle that has this module alone, as seen from this one."""
    body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(lambda match: _constants(match, names[_resolved(path, match[2])]), source))
    other = _OTHER.search(body)
    if other:
        raise BundleError(f"{path}: {other[0]!r} is no form of import or export that a bundle can have")
    body = body.replace("import.meta.url", f"new URL({json.dumps(url)}, import.meta.url)")
    return f"// {path}\n{_COMMENT.sub('', body)}"


def _function(path: str, source: str, names: Mapping[str, str], url: str) -> str:
    return f"const {names[path]} = (() => {{\n{_body(path, source, names, url)}{_return(source)}}})();\n"


def _return(source: str) -> str:
    return f"return {{ {', '.join(match[2] for match in _EXPORT.finditer(source))} }};\n"


def _constants(match: re.Match[str], module: str) -> str:
    """``import { one, two as three } from "…";`` as ``const { one, two: three } = module1;``."""
    return f"const {{{match[1].replace(' as ', ': ')}}} = {module};" if match[1] else ""


def _resolved(path: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), name))


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
    headers = {"Cache-Control": IMMUTABLE if is_immutable else _REVALIDATED, "ETag": file.etag}
    varying = {**headers, "Vary": "Accept-Encoding"}
    if file.etag in [tag.strip() for tag in request.get("if-none-match", "").split(",")]:
        return Response(status_code=304, headers=varying)
    if "gzip" in request.get("accept-encoding", ""):
        return Response(file.compressed, media_type=file.media_type, headers={**varying, "Content-Encoding": "gzip"})
    return Response(file.content, media_type=file.media_type, headers=headers)  # ``GZipMiddleware`` adds Vary


@cache
def page_files() -> StaticFiles:
    """The files of the pages of rekindle."""
    return StaticFiles(_ROOT)
