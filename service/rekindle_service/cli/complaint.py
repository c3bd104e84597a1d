"""What went wrong, as one block that a person can act on."""

from rich.text import Text

from rekindle_service.client import FieldProblem, Problem
from rekindle_service.sanitize import sanitize_line


def complaint(message: str, *hints: str) -> Text:
    """``error: message`` with a line for each hint."""
    text = Text.assemble(("error: ", "bold red"), sanitize_line(message))
    for hint in hints:
        text.append(f"\n  {sanitize_line(hint)}")
    return text


def problem_text(problem: Problem) -> Text:
    """The server's refusal: what, then for each field the rule, the value and the way out."""
    errors = problem.get("errors") or []
    if not errors:
        return complaint(problem.get("detail") or problem.get("title") or "the server refused without a reason")
    text = complaint("not accepted")
    for each in errors:
        text.append(_field_text(each))
    return text


def _field_text(problem: FieldProblem) -> str:
    lines = [f"\n  {sanitize_line(problem.get('field', '?'))}: {sanitize_line(problem.get('rule', 'not accepted'))}"]
    if "value" in problem:
        lines.append(f"\n    given: {sanitize_line(problem['value'])}")
    if problem.get("hint"):
        lines.append(f"\n    hint:  {sanitize_line(problem['hint'])}")
    return "".join(lines)
