"""Errors as people read them: what is wrong, by which rule, the given value, and what to do next."""

import re
from typing import Any

from rich.text import Text
from typer.core import TyperGroup

from rekindle_service.cli.command_help import option_names, usage
from rekindle_service.cli.output import err, print_wrapped
from rekindle_service.client import Problem
from rekindle_service.sanitize import sanitize_line
from rekindle_service.suggestions import closest

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
