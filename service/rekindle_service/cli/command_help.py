"""The help of the commands: what a command does, how it is called, and its options in groups.

Every line fits the terminal and ends between two words; the names of options are never cut.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

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
