"""The page of what Python programs import, from signatures and docstrings."""

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import rekindle
from docs.reference.markdown import GENERATED, first_sentence, prose, table
from rekindle_service.client import Client

_QUALIFIED = re.compile(r"\b(?:[A-Za-z_]\w*\.)+(\w+)")
_JSON = re.compile(r"Json\['(\w+)'\]")
_CLASS = re.compile(r"<class '([^']+)'>")
_GENERATOR = re.compile(r"AsyncGenerator\[(.+), None\]$")
_MEMBERS = (property, staticmethod, classmethod)

_INTRODUCTION = """\
`import rekindle` in a training script has the names below; it loads torch only when one of them is used.
`rekindle_service.client` controls jobs from another program. [Training](../training.md) and
[Python client](../client.md) show how the parts are used together."""

_CLIENT = """\
`Client.from_home()` finds the server as the command line does; `AsyncClient` has the same methods as coroutines, and
asynchronous generators in place of iterators. Answers are the JSON of the [REST API](rest.md) as typed dictionaries.
A method raises `ProblemError` with the answer of the server where it is an error, and `NoServerError` where none
answers."""


def lines() -> Iterator[str]:
    """The whole page."""
    yield from ("# Python API", "", GENERATED, "", *_INTRODUCTION.splitlines(), "")
    found = [(name, getattr(rekindle, name)) for name in sorted(rekindle.__all__)]
    yield from table(
        ("name", "is"), ((f"[`rekindle.{name}`](#rekindle{name.lower()})", _first(name, each)) for name, each in found)
    )
    for name, each in found:
        yield from _section(f"rekindle.{name}", each)
    yield from ("## rekindle_service.client.Client", "", *_CLIENT.splitlines(), "")
    for name, member in _methods(Client):
        yield from _member(f"client.{name}", name, member)


def _section(name: str, found: Any) -> Iterator[str]:
    yield from (f"## {name}", "")
    if not (inspect.isclass(found) and issubclass(found, BaseException)):
        yield from ("```text", f"{name}{_signature(found)}", "```", "")
    yield from (*_documentation(name, found).splitlines(), "")
    if inspect.isclass(found):
        for member, value in _members(found):
            yield from _member(f"{name}.{member}", member, value)


def _members(found: type) -> Iterator[tuple[str, Any]]:
    """What a class defines itself for others to use; fields of a dataclass are in its signature."""
    for name, value in vars(found).items():
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, _MEMBERS)):
            yield name, value


def _methods(found: type) -> Iterator[tuple[str, Any]]:
    """The methods of a client, with those that it inherits."""
    names = dict.fromkeys(name for base in reversed(found.__mro__) for name in vars(base) if not name.startswith("_"))
    return ((name, getattr(found, name)) for name in names if callable(getattr(found, name)))


def _member(heading: str, name: str, value: Any) -> Iterator[str]:
    yield from (f"### {heading}", "")
    if not isinstance(value, property):
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        yield from ("```text", f"{name}{_signature(function)}", "```", "")
    yield from (*_documentation(heading, value).splitlines(), "")


def _first(name: str, found: Any) -> str:
    return first_sentence(_documentation(name, found))


def _documentation(name: str, found: Any) -> str:
    """Raises ValueError where there is none."""
    text = inspect.getdoc(found)
    if not text:
        raise ValueError(f"{name} has no docstring: say what it is or does, with units")
    return prose(text)


def _signature(found: Callable[..., Any]) -> str:
    """The signature as it is called: without ``self``, and with the last part of each name of a type."""
    signature = inspect.signature(found)
    parameters = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
    text = str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))
    answer = signature.return_annotation
    if not inspect.isclass(found) and answer is not inspect.Signature.empty:
        text += f" -> {inspect.formatannotation(answer)}"
    text = _GENERATOR.sub(r"Iterator[\1]", _plain(text))
    return text if len(text) < 100 else _wrapped(text)


def _plain(text: str) -> str:
    return _JSON.sub(r"\1", _QUALIFIED.sub(r"\1", _CLASS.sub(r"\1", text)))


def _wrapped(text: str) -> str:
    """One parameter a line."""
    inside, end, answer = text[1:].rpartition(")")
    parts = re.split(r", (?=[*\w]+(?:: | ?=|$|, ))", inside)
    return "(\n" + "".join(f"    {part},\n" for part in parts) + end + answer
