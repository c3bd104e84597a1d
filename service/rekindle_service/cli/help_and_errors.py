"""What the command line says about itself: the help of the commands, and errors in how they were called."""

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Any

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from rekindle_service.cli.terminal import err, print_wrapped
from rekindle_service.client import Problem
from rekindle_service.sanitize import sanitize_line
from rekindle_service.suggestions import closest

_MAX_WIDTH = 100  # cells; longer lines are hard to read
_MIN_WIDTH = 40
_MAX_LABEL = 27  # cells of the names of an option; longer ones have a line of their own
_GAP = 2
_EXAMPLE = "rekindle "
_TYPES = {"<str>": "TEXT", "<path>": "PATH"}
_TYPES |= dict.fromkeys(("<int>", "<int range>"), "N") | dict.fromkeys(("<float>", "<float range>"), "NUMBER")

Row = tuple[str, str]


_WORDS = "rekindle.words"


class Command(TyperCommand):
    """A command whose help is ``help_text``, and that keeps its words (see ``words_before``)."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the words, of which parsing drops a ``--``."""
        ctx.meta[_WORDS] = list(args)
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help for the width of the terminal."""
        formatter.write(help_text(self, ctx, terminal_width()))


class Group(TyperGroup):
    """A command with others below it, whose help is ``help_text``."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help for the width of the terminal."""
        formatter.write(help_text(self, ctx, terminal_width()))


def words_before(context: Any, last: Sequence[str]) -> list[str]:
    """The words of this command before its ``last`` ones, with a ``--`` where there is one."""
    words: list[str] = context.meta[_WORDS]
    return words[: len(words) - len(last)]


def terminal_width() -> int:
    """Cells of a line; 80 where there is no terminal and ``COLUMNS`` is not set."""
    return max(min(shutil.get_terminal_size().columns, _MAX_WIDTH), _MIN_WIDTH)


def help_text(command: Command | Group, context: Any, width: int) -> str:
    """The whole page, with headings in bold where a terminal shows it."""
    lines = [f"{typer.style('Usage:', bold=True)} {usage(command, context)}", ""]
    lines += _description(command.help or "", width)
    for groups in (_commands(command), _parameters(command, context)):
        column = _column(row for rows in groups.values() for row in rows)
        for heading, rows in groups.items():
            lines += ["", typer.style(heading, bold=True), *_rows(rows, column, width)]
    return "\n".join(lines) + "\n"


def usage(command: Any, context: Any) -> str:
    """``rekindle logs [OPTIONS] JOB``."""
    words = [context.command_path, "[OPTIONS]"]
    words += [_argument(param) for param in command.get_params(context) if param.param_type_name == "argument"]
    return " ".join([*words, "COMMAND …"] if isinstance(command, Group) else words)


def _argument(param: Any) -> str:
    """As it is called: in brackets where it may be omitted."""
    name = param.metavar or param.name.upper()
    if "[" in name:
        return str(name)
    return f"{name if param.required else f'[{name}]'}{'' if param.nargs == 1 else '...'}"


def _description(text: str, width: int) -> Iterator[str]:
    """Paragraphs; one that is a command is an example, which stays as it is."""
    for index, paragraph in enumerate(text.replace("``", "`").split("\n\n")):
        joined = " ".join(paragraph.split())
        yield from [""] if index else []
        yield from [f"    {joined}"] if joined.startswith(_EXAMPLE) else _wrapped(joined, width)


def _commands(command: Any) -> dict[str, list[Row]]:
    """Rows of the commands below this one, by their panels."""
    found: dict[str, list[Row]] = {}
    for name, below in getattr(command, "commands", {}).items():
        found.setdefault(below.rich_help_panel or "Commands", []).append((name, first_sentence(below.help or "")))
    return found


def _parameters(command: Any, context: Any) -> dict[str, list[Row]]:
    """Rows of arguments, and of options by their panels."""
    params = command.get_params(context)
    arguments = [(_argument(each), each.help or "") for each in params if each.param_type_name == "argument"]
    found: dict[str, list[Row]] = {"Arguments": arguments} if arguments else {}
    for param in params:
        if param.param_type_name == "option" and not param.hidden:
            found.setdefault(param.rich_help_panel or "Options", []).append(option_row(param, context))
    return found


def option_row(param: Any, context: Any) -> Row:
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
    """Without its full stop, as a heading."""
    paragraph = " ".join(text.partition("\n\n")[0].split()).replace("``", "`")
    return paragraph.partition(". ")[0].rstrip(".")


def _column(rows: Iterable[Row]) -> int:
    """The cells that labels take, where they are not too long."""
    return max((len(label) for label, _ in rows if len(label) <= _MAX_LABEL), default=_MAX_LABEL)


def _rows(rows: Sequence[Row], column: int, width: int) -> Iterator[str]:
    """Two columns: labels and text."""
    indent = " " * _GAP
    for label, text in rows:
        lines = _wrapped(text, width - column - 2 * _GAP) or [""]
        if len(label) > column:
            yield indent + label
        else:
            yield f"{indent}{label:<{column}}{indent}{lines.pop(0)}".rstrip()
        yield from (f"{indent}{'':<{column}}{indent}{line}" for line in lines)


def _wrapped(text: str, width: int) -> list[str]:
    return wrap(text, width, break_long_words=False, break_on_hyphens=False)


def option_names(params: Iterable[Any]) -> list[str]:
    """Every long name of an option."""
    return [
        name
        for param in params
        if param.param_type_name == "option" and not param.hidden
        for name in (*param.opts, *param.secondary_opts)
        if name.startswith("--")
    ]


# --- errors

_LABEL = "error: "
_INDENT = "  "
_QUOTED_OPTION = re.compile(r"^'(-[^']*)'")
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
_INVALID = re.compile(r"Invalid value(?: for )?:? ?")


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
    option = getattr(error, "option_name", None)
    command = None if error.ctx is None else error.ctx.command
    message = _INVALID.sub("", error.format_message(), count=1).replace("Value error, ", "")
    message = _QUOTED_OPTION.sub(r"\1", message).replace("Input should be", "must be")
    if getattr(error, "possibilities", None) is not None and command is not None:
        if before := _before_command(str(option), error.ctx):
            return before
        near = closest(str(option), option_names(command.get_params(error.ctx)))
        return f"no such option: {option}" + (f"; did you mean {' or '.join(near)}?" if near else "")
    if isinstance(command, TyperGroup) and message.startswith("No such command"):
        return _unknown_command(message, error.ctx)
    if choice := _CHOICE.search(message):
        near = closest(choice[1], _WORD.findall(choice[2]))
        return message.rstrip(".") + (f"; did you mean {near[0]!r}?" if near else "")
    return message[:1].lower() + message[1:] if message.startswith(_OWN_SENTENCES) else message


def _before_command(option: str, context: Any) -> str | None:
    """Of an option of `rekindle` itself that was given to one of its commands."""
    root = context.find_root()
    found = next((each for each in root.command.get_params(root) if option in each.opts and each.name != "help"), None)
    if found is None or context is root:
        return None
    value = "" if found.is_flag else f" {found.metavar}"
    below = context.command_path.removeprefix(f"{root.command_path} ")
    return f"{option} comes before the command: {root.command_path} {option}{value} {below}"


def _unknown_command(message: str, context: Any) -> str:
    """With the command for a word of other tools, else what typer suggests."""
    name = _WORD.search(message)
    if name is not None and context.parent is None and name[1] in _OTHER_WORDS:
        return f"no such command {name[0]}; did you mean {_OTHER_WORDS[name[1]]}?"
    return message.rstrip(".").replace("No such", "no such", 1).replace(". Did you", "; did you")


def print_error(text: Text) -> None:
    """On standard error."""
    print_wrapped(err(), text)
