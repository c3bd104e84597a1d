"""The text below a field of a class is its description in a JSON schema: read only when a schema is made."""

import ast
import inspect
import sys
from collections import defaultdict
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar


def describe(schema: dict[str, Any], cls: type) -> None:
    """Add the descriptions of all fields, those that ``cls`` inherits among them, and that of a generic class."""
    schema.setdefault("description", inspect.getdoc(cls) or "")
    for base in cls.__mro__:
        for name, text in field_texts(base).items():
            if name in schema.get("properties", {}):
                schema["properties"][name].setdefault("description", text)


def field_texts(cls: type) -> Mapping[str, str]:
    """The texts below the fields that a class itself declares; "" where the source is not installed."""
    return defaultdict(str, _module_texts(cls.__module__).get(cls.__name__, {}))


@cache
def _module_texts(module: str) -> dict[str, dict[str, str]]:
    """Texts of the module by class and field; empty where the source is not installed."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    return {node.name: _texts(node) for node in tree.body if isinstance(node, ast.ClassDef)}


def _texts(definition: ast.ClassDef) -> dict[str, str]:
    texts = {}
    for field, text in pairwise(definition.body):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(found))):
                texts[name] = inspect.cleandoc(found)
    return texts


class Described:
    """Base of dataclasses that are part of a response: the text below a field is its description."""

    __slots__ = ()
    __pydantic_config__: ClassVar[dict[str, Any]] = {"json_schema_extra": describe}
