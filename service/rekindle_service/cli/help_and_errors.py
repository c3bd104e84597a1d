"""The help of the commands, and errors in how they were called or in what they requested."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from rekindle_service.cli.terminal import err, print_wrapped
from rekindle_service.client import Problem
from rekindle_service.sanitize import sanitize_line
from rekindle_service.suggestions import closest, rule_of

_WORDS = "rekindle.words"
_TARGETS = {"-m": "module", "--module": "module", "--recipe": "recipe"}


def _format_help(self: Any, ctx: Any, formatter: Any) -> None:
    """Write the help for the width of the terminal."""
    console = Console(highlight=False, markup=False, emoji=False)
    formatter.write(help_text(console, self, ctx))


class Command(TyperCommand):
    """A command that keeps its words (see ``words_before``)."""

    format_help = _format_help

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the words, of which parsing drops a ``--``."""
        ctx.meta[_WORDS] = list(args)
        return super().parse_args(ctx, args)


class CommandGroup(TyperGroup):
    """A command with others below it."""

    format_help = _format_help


def words_before(context: Any, last: Sequence[str]) -> list[str]:
    """The words of this command before its ``last`` ones, with a ``--`` where there is one."""
    words: list[str] = context.meta[_WORDS]
    return words[: len(words) - len(last)]


# --- help

_MAX_WIDTH = 100  # cells; longer lines are hard to read
_MAX_LABEL = 27  # cells of the names of an option, up to which all groups have the same columns
_GAP = 2  # cells
_EXAMPLE = "rekindle "
_TYPES = {"<str>": "TEXT", "<path>": "PATH"}
_TYPES |= dict.fromkeys(("<int>", "<int range>"), "N") | dict.fromkeys(("<float>", "<float range>"), "NUMBER")


def help_text(console: Console, command: Any, context: Any) -> str:
    """The help of a command for the width of the terminal."""
    console.width = min(console.width, _MAX_WIDTH)
    with console.capture() as capture:
        console.print(*help_parts(command, context), sep="\n")
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def help_parts(command: Any, context: Any) -> Iterator[RenderableType]:
    """How a command is called, what it does, and its commands, arguments and options in groups.

    A paragraph that is a command is an example, which stays as it is. The names of options are never cut.
    """
    yield Text.assemble(("Usage:", "bold"), " ", usage(command, context))
    for paragraph in (command.help or "").replace("``", "`").split("\n\n"):
        text = " ".join(paragraph.split())
        yield Text(f"\n    {text}", no_wrap=True) if text.startswith(_EXAMPLE) else Text(f"\n{text}")
    for groups in (_commands(command), _parameters(command, context)):
        labels = [len(label) for rows in groups.values() for label, _ in rows]
        column = max((length for length in labels if length <= _MAX_LABEL), default=0)
        for heading, rows in groups.items():
            yield Text(f"\n{heading}", "bold")
            table = Table.grid(padding=(0, _GAP, 0, 0))
            table.add_column(no_wrap=True, min_width=column)
            table.add_column(overflow="fold")
            for label, text in rows:
                table.add_row(label, text)
            yield Padding(table, (0, 0, 0, _GAP))


def usage(command: Any, context: Any) -> str:
    """``rekindle logs [OPTIONS] JOB``."""
    words = [context.command_path, "[OPTIONS]"]
    words += [_argument(param) for param in command.get_params(context) if param.param_type_name == "argument"]
    return " ".join([*words, "COMMAND …"] if isinstance(command, CommandGroup) else words)


def _argument(param: Any) -> str:
    """The argument as it is called: in brackets where it may be omitted."""
    name = param.metavar or param.name.upper()
    if "[" in name:
        return str(name)
    return f"{name if param.required else f'[{name}]'}{'' if param.nargs == 1 else '...'}"


def _commands(command: Any) -> dict[str, list[tuple[str, str]]]:
    """Rows of the commands below this one, by their panels."""
    found: dict[str, list[tuple[str, str]]] = {}
    for name, below in getattr(command, "commands", {}).items():
        found.setdefault(below.rich_help_panel or "Commands", []).append((name, first_sentence(below.help or "")))
    return found


def _parameters(command: Any, context: Any) -> dict[str, list[tuple[str, str]]]:
    """Rows of arguments, and of options by their panels."""
    params = command.get_params(context)
    arguments = [(_argument(each), each.help or "") for each in params if each.param_type_name == "argument"]
    found = {"Arguments": arguments} if arguments else {}
    for param in params:
        if param.param_type_name == "option" and not param.hidden:
            found.setdefault(param.rich_help_panel or "Options", []).append(option_row(param, context))
    return found


def option_row(param: Any, context: Any) -> tuple[str, str]:
    """``-n, --tail N`` and what it does, with its default."""
    names = sorted(param.opts, key=len) + [f"/ {name}" for name in param.secondary_opts]
    label = ", ".join(names).replace(", /", " /")
    if not param.is_flag:
        shown = param.metavar or param.display_type(context)
        label += f" {_TYPES.get(shown, shown.strip('<>'))}"
    text = param.help or ""
    if param.default not in (None, False, "") and "(default" not in text:
        text += f" (default: {param.default})"
    return label, text


def first_sentence(text: str) -> str:
    """The first sentence without its full stop, as a heading."""
    paragraph = " ".join(text.partition("\n\n")[0].split()).replace("``", "`")
    return paragraph.partition(". ")[0].rstrip(".")


# --- errors

_LABEL = "error: "
_INDENT = "  "
_INVALID = re.compile(r"Invalid value(?: for )?:? ?")
_QUOTED_OPTION = re.compile(r"^'(-[^']*)': ")
_CHOICE = re.compile(r"'([^']*)' is not one of (.*)")
_WORD = re.compile(r"'([^']*)'")
_OWN_SENTENCES = ("Missing ", "Option ", "Got ")
_OTHER_WORDS = {
    "kill": "'cancel'",
    "status": "'show' or 'ps'",
    "list": "'ps'",
    "ls": "'ps'",
    "jobs": "'ps'",
    "start": "'submit'",
    "run": "'submit'",
    "stop": "'cancel' or 'drain'",
    "export": "'snapshots export'",
}
"""Commands of other tools, and what is meant here."""


def format_error(message: str, *hints: str) -> Text:
    """``error: message`` with a line for each hint."""
    text = Text.assemble((_LABEL, "bold red"), sanitize_line(message))
    for hint in hints:
        text.append(f"\n{_INDENT}{sanitize_line(hint)}")
    return text


def format_problem(problem: Problem) -> Text:
    """Why the server rejected a request: for each field the rule, the given value and a hint."""
    errors = problem.get("errors") or []
    if not errors:
        return format_error(problem.get("detail") or problem.get("title") or "the server rejected it without a reason")
    text = format_error("request rejected" if "status" in problem else problem.get("title", "request rejected").lower())
    for field in errors:
        text.append(f"\n  {sanitize_line(field.get('field', '?'))}: {sanitize_line(field.get('rule', 'rejected'))}")
        if "value" in field:
            text.append(f"\n    given: {sanitize_line(field['value'])}")
        if field.get("hint"):
            text.append(f"\n    hint:  {sanitize_line(field['hint'])}")
    return text


def format_usage_error(error: Any) -> Text:
    """What typer found wrong with a command line, the nearest right name, and how the command is called."""
    context = error.ctx
    if context is None:
        return format_error(usage_message(error), "Help: rekindle --help")
    called = f"Usage: {usage(context.command, context)}"
    return format_error(usage_message(error), called, f"Help:  {context.command_path} --help")


def usage_message(error: Any) -> str:
    """``no such option: --stat; did you mean --state?``."""
    message: str = _INVALID.sub("", error.format_message(), count=1)
    if (possible := getattr(error, "possibilities", None)) is not None:
        options = " or ".join(closest(error.option_name, possible))
        unknown = f"no such option: {error.option_name}" + (f"; did you mean {options}?" if options else ".")
        further = _after_dashes(error.option_name, error.ctx)
        return _before_command(error.option_name, error.ctx) or f"{unknown} {further}".rstrip(". ")
    if message.startswith("No such command"):
        return _unknown_command(message, error.ctx)
    if choice := _CHOICE.search(message):
        near = closest(choice[1], _WORD.findall(choice[2]))
        message = message.rstrip(".") + (f"; did you mean {near[0]!r}?" if near else "")
    if option := _QUOTED_OPTION.match(message):
        return f"{option[1]}: {rule_of(message[option.end() :])}"
    return message[:1].lower() + message[1:] if message.startswith(_OWN_SENTENCES) else message


def _before_command(option: str, context: Any) -> str | None:
    """Where an option of `rekindle` itself belongs that was given to one of its commands."""
    root = context.find_root()
    found = next((each for each in root.command.get_params(root) if option in each.opts and each.name != "help"), None)
    if found is None or context is root:
        return None
    value = "" if found.is_flag else f" {found.metavar}"
    below = context.command_path.removeprefix(f"{root.command_path} ")
    return f"{option} comes before the command: {root.command_path} {option}{value} {below}"


def _after_dashes(option: str, context: Any) -> str:
    """Where an option of a module or recipe goes, if one was named before it without a ``--``; else empty."""
    words = context.meta.get(_WORDS, [])
    at = next((index for index, word in enumerate(words) if word in _TARGETS), len(words))
    known = any(each.name == "module" for each in context.command.params)
    if not known or "--" in words or not any(word.startswith(option) for word in words[at:]):
        return ""
    return f"Options of the {_TARGETS[words[at]]} come after --, as in {' '.join(words[at : at + 2])} -- {option}"


def _unknown_command(message: str, context: Any) -> str:
    """The command for a word of other tools, else what typer suggests."""
    name = _WORD.search(message)
    if name is not None and context.parent is None and name[1] in _OTHER_WORDS:
        return f"no such command {name[0]}; did you mean {_OTHER_WORDS[name[1]]}?"
    return message.rstrip(".").replace("No such", "no such", 1).replace(". Did you", "; did you")


def print_error(text: Text) -> None:
    """Print an error on standard error."""
    print_wrapped(err(), text)
