"""The page of all commands with their options, from the program's parser."""

import inspect
import re
from collections.abc import Iterator
from typing import Any

import typer
from typer.main import get_command

from docs.reference.markdown import GENERATED, anchor, code, first_sentence, prose, table
from rekindle_service.cli.main import app

_DEFAULT = re.compile(r"\s*\(default: ((?:[^()]|\([^()]*\))*)\)")
_KINDS = {"str": "TEXT", "int": "N", "float": "NUMBER", "path": "PATH"}

_INTRODUCTION = """\
`rekindle COMMAND --help` prints the same in a terminal. A job is named by its id, the beginning of it, its number, or
its name (the latest job of that name). `-o json` prints the answer of the server, `-o id` only ids. What the exit codes
mean: [exit codes](exit-codes.md).

Options of `rekindle` itself, such as `--home` and `--url`, come before the command."""


def lines() -> Iterator[str]:
    """The whole page."""
    root = get_command(app)
    yield from ("# Command line", "", GENERATED, "", *_INTRODUCTION.splitlines(), "")
    found = list(_commands(root))
    yield from table(("command", "does"), (_row(name, command) for name, command in found))
    yield from ("## Options before the command", "")
    yield from _parameters(root)
    for name, command in found:
        yield from _section(name, command)


def _commands(group: Any, prefix: str = "rekindle") -> Iterator[tuple[str, Any]]:
    """All commands that people type, with their full names, in the order of the help."""
    for name, command in group.commands.items():
        if getattr(command, "hidden", False):
            continue
        if hasattr(command, "commands"):
            if command.invoke_without_command:
                yield f"{prefix} {name}", command
            yield from _commands(command, f"{prefix} {name}")
        else:
            yield f"{prefix} {name}", command


def _row(name: str, command: Any) -> tuple[str, str]:
    return f"[`{name}`](#{anchor(name)})", first_sentence(command.help)


def _section(name: str, command: Any) -> Iterator[str]:
    yield from (f"## {name}", "", "```text", f"{name} {' '.join(_usage(command))}".rstrip(), "```", "")
    yield from (*_help(command.help).splitlines(), "")
    yield from _parameters(command)


def _usage(command: Any) -> Iterator[str]:
    if any(_is_option(each) for each in command.params):
        yield "[OPTIONS]"
    for each in command.params:
        if not _is_option(each):
            yield _argument(each)


def _help(text: str) -> str:
    """The help, in which a paragraph that is a command line is a code block."""
    paragraphs = prose(inspect.cleandoc(text)).split("\n\n")
    return "\n\n".join(f"```text\n{one}\n```" if one.startswith("rekindle ") else one for one in paragraphs)


def _parameters(command: Any) -> Iterator[str]:
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [(code(_argument(each)), each.help or "") for each in shown if not _is_option(each)]
    yield from table(("argument", "means"), arguments)
    context = typer.Context(command)
    options = (_option(each, context) for each in shown if _is_option(each))
    yield from table(("option", "value", "default", "means"), options)


def _is_option(parameter: Any) -> bool:
    return parameter.param_type_name == "option"


def _argument(parameter: Any) -> str:
    name = parameter.metavar or parameter.name.upper()
    plain = name if parameter.required or name.startswith("[") else f"[{name}]"
    return plain if parameter.nargs == 1 or parameter.metavar else f"{plain}..."


def _option(option: Any, context: typer.Context) -> tuple[str, str, str, str]:
    names = ", ".join(map(code, [*option.opts, *option.secondary_opts]))
    means = option.help or ""
    stated = _DEFAULT.search(means)
    default = stated[1] if stated else _default(option)
    repeated = " May be given more than once." if option.multiple and "epeat" not in means else ""
    return names, _value(option, context), default, _DEFAULT.sub("", means) + repeated


def _value(option: Any, context: typer.Context) -> str:
    if option.is_flag:
        return ""
    kind = option.display_type(context).strip("<>").removeprefix("list[").removesuffix("]").removesuffix(" range")
    bounds = [f"{sign} {limit}" for sign, limit in (("≥", option.min), ("≤", option.max)) if limit is not None]
    return ", ".join([code(option.metavar or _KINDS.get(kind, kind)), *bounds])


def _default(option: Any) -> str:
    if option.is_flag or option.default in (None, [], ()) or callable(option.default):
        return ""
    return code(str(option.default))
