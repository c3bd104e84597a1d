"""What went wrong, as one block of text that a person can act on."""

from rich.text import Text

from rekindle_service.client import FieldProblem, Problem
from rekindle_service.sanitize import sanitize_line


def format_error(message: str, *hints: str) -> Text:
    """``error: message`` with a line for each hint."""
    text = Text.assemble(("error: ", "bold red"), sanitize_line(message))
    for hint in hints:
        text.append(f"\n  {sanitize_line(hint)}")
    return text


def format_problem(problem: Problem) -> Text:
    """Why the server rejected a request: for each field the rule, the given value and a hint."""
    errors = problem.get("errors") or []
    if not errors:
        return format_error(problem.get("detail") or problem.get("title") or "the server rejected it without a reason")
    text = format_error("request rejected")
    for each in errors:
        text.append(_format_field(each))
    return text


def _format_field(problem: FieldProblem) -> str:
    lines = [f"\n  {sanitize_line(problem.get('field', '?'))}: {sanitize_line(problem.get('rule', 'rejected'))}"]
    if "value" in problem:
        lines.append(f"\n    given: {sanitize_line(problem['value'])}")
    if problem.get("hint"):
        lines.append(f"\n    hint:  {sanitize_line(problem['hint'])}")
    return "".join(lines)
