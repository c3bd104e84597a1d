"""One file for all modules of a page, and one for all its styles, which a browser would ask for one after the other.

A bundle is made of a file and of everything that it imports. Each module becomes a function that runs once and returns
what the module exports; its imports become constants. That needs no parser, because the modules keep to one form:
``import { … } from "…";`` or ``import "…";``, and ``export`` before a function, class or constant that is declared at
the beginning of a line. Whatever else begins with ``import`` or ``export`` is rejected. The first file, which nothing
imports, becomes a block: it may wait at its top level.
"""

import json
import posixpath
import re
from collections.abc import Mapping

SEPARATE_MODULES = frozenset({"shared/theme.js"})
"""Modules that a page loads before its bundle; the bundle imports them, so that they run once."""

_IMPORT = re.compile(r'^import (?:\{([^}]*)\} from )?"(\.{1,2}/[^"]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:async )?function|class|const) (\w+)", re.MULTILINE)
_OTHER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)
_STYLE_IMPORT = re.compile(r'^@import "(\.{1,2}/[^"]+)";\n', re.MULTILINE)


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
    imported = [_import(each, names[each], here) for each in ordered if each in SEPARATE_MODULES]
    urls = {each: posixpath.relpath(f"{directory}/{each}", here) for each in ordered}
    functions = [
        f"const {names[each]} = (() => {{\n{_body(each, files[each], names, urls[each])}{_return(files[each])}}})();\n"
        for each in ordered[:-1]
        if each not in SEPARATE_MODULES
    ]
    return "".join([*imported, *functions, f"{{\n{_body(path, files[path], names, urls[path])}}}\n"])


def _import(path: str, name: str, here: str) -> str:
    return f"import * as {name} from {json.dumps(posixpath.relpath(path, here))};\n"


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
    return f"// {path}\n{body}"


def _return(source: str) -> str:
    return f"return {{ {', '.join(match[2] for match in _EXPORT.finditer(source))} }};\n"


def _constants(match: re.Match[str], module: str) -> str:
    """``import { one, two as three } from "…";`` as ``const { one, two: three } = module1;``."""
    return f"const {{{match[1].replace(' as ', ': ')}}} = {module};" if match[1] else ""


def _resolved(path: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), name))
