"""The recipes that a job may name, found without importing them: they need torch, which the service never loads."""

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

_READER = "read_options"  # the function that each recipe calls with the names of the options it offers
_CHOICES = {"models": "model", "precisions": "amp"}  # its arguments that offer an option of their own
_PARSING = Lock()  # one counter of an interpreter guards the depth of the trees it parses: two threads upset it


@dataclass(frozen=True, slots=True)
class RecipeOption:
    """One option of a recipe's command line. ``default`` is None where the recipe has a rule of its own for it."""

    name: str  # without the dashes
    help: str
    metavar: str | None
    choices: tuple[str, ...]
    is_flag: bool
    default: str | None


def recipes() -> dict[str, str]:
    """Name → first line of its docstring. A recipe is a file of ``rekindle.recipes`` whose docstring says "Recipe"."""
    titles = {name: _title(tree) for name, tree in _trees().items()}
    return {name: title for name, title in titles.items() if title.startswith("Recipe")}


def recipe_options(recipe: str) -> list[RecipeOption]:
    """What the recipe's command line takes, as far as its source tells. Precondition: it is one of ``recipes()``."""
    trees = _trees()
    scopes = {name: _assignments(tree) for name, tree in trees.items()}
    call = _call(trees[recipe])
    if call is None:
        return []
    shared, own = scopes["options"], _Values(scopes, recipe)
    flags = {name: flag for name, flag in _Values(scopes, "options").read(shared["_FLAGS"]).items() if name}
    names = [*_Values(scopes, "options").read(shared["COMMON"]), *own.read(ast.Tuple(call.args[1:]))]
    given = {word.arg: own.read(word.value) for word in call.keywords if word.arg is not None}
    defaults = _defaults(trees["options"], _Values(scopes, "options")) | given
    offered = {name: flags[name] for name in names if name in flags}
    for argument, name in _CHOICES.items():
        if given.get(argument):
            offered[name] = {"choices": given[argument]}
            defaults[name] = given[argument][0]
    return [_option(name, flag, defaults) for name, flag in offered.items()]


def _option(name: str, flag: Mapping[str, Any], defaults: Mapping[str, Any]) -> RecipeOption:
    is_flag = str(flag.get("action", "")).startswith("store_")
    default = defaults.get(name.replace("-", "_"))
    return RecipeOption(
        name=name,
        help=flag.get("help") or "",
        metavar=flag.get("metavar"),
        choices=tuple(flag.get("choices") or ()),
        is_flag=is_flag,
        default=None if is_flag or default in (None, ()) else str(default),
    )


class _Values:
    """Reads literals, and names that stand for literals in the same or a sibling module."""

    def __init__(self, scopes: Mapping[str, Mapping[str, ast.expr]], module: str) -> None:
        self._scopes, self._module = scopes, module

    def read(self, node: ast.expr) -> Any:
        """The value, or None for what only running the module could tell."""
        match node:
            case ast.Tuple(elts) | ast.List(elts):
                return tuple(self._each(elts))
            case ast.Dict(keys, values):
                return {self.read(key): self.read(value) for key, value in zip(keys, values, strict=True) if key}
            case ast.Name(name):
                return self._lookup(self._module, name)
            case ast.Attribute(ast.Name(module), name):
                return self._lookup(module, name)
            case ast.Call(ast.Name("Path"), [argument]):
                return self.read(argument)
        with suppress(ValueError):
            return ast.literal_eval(node)
        return None

    def _each(self, nodes: list[ast.expr]) -> Iterator[Any]:
        for node in nodes:
            if isinstance(node, ast.Starred):
                yield from self.read(node.value) or ()
            else:
                yield self.read(node)

    def _lookup(self, module: str, name: str) -> Any:
        found = self._scopes.get(module, {}).get(name)
        return None if found is None else _Values(self._scopes, module).read(found)


def _trees() -> Mapping[str, ast.Module]:
    """Nobody changes them. Source of the lock: CPython's issue 106905, a rare ``SystemError`` of Python 3.11."""
    with _PARSING:
        return _parse_all()


@cache
def _parse_all() -> dict[str, ast.Module]:
    spec = importlib.util.find_spec("rekindle")
    if spec is None or spec.submodule_search_locations is None:
        return {}
    files = sorted(Path(spec.submodule_search_locations[0], "recipes").glob("*.py"))
    return {file.stem: ast.parse(file.read_bytes()) for file in files}


def _title(tree: ast.Module) -> str:
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def _assignments(tree: ast.Module) -> dict[str, ast.expr]:
    """Name → what a module gives it at its top level."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        match node:
            case ast.Assign([ast.Name(name)], value):
                found[name] = value
            case ast.AnnAssign(ast.Name(name), _, ast.expr() as value):
                found[name] = value
    return found


def _call(tree: ast.Module) -> ast.Call | None:
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    return next((call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == _READER), None)


def _defaults(tree: ast.Module, values: _Values) -> dict[str, Any]:
    """Of the fields of the class ``Options``."""
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Options")
    fields = [node for each in classes for node in each.body if isinstance(node, ast.AnnAssign) and node.value]
    return {
        field.target.id: values.read(field.value)
        for field in fields
        if isinstance(field.target, ast.Name) and field.value
    }
