"""Parts of Markdown pages that are made from the code."""

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence

GENERATED = "<!-- Written by `make generate` from the code: do not edit. -->"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """A table without columns that are empty in all rows, and a blank line; nothing where there are no rows."""
    found = list(rows)
    if not found:
        return
    used = [column for column in range(len(header)) if any(row[column] for row in found)]
    yield _row(header[column] for column in used)
    yield "|" + "---|" * len(used)
    for row in found:
        yield _row(row[column] for column in used)
    yield ""


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(cell, cells))} |"


def cell(text: str) -> str:
    """One line, in which no character ends the cell or begins a tag."""
    parts = re.split(r"(`[^`]*`)", " ".join(text.split()).replace("|", "\\|"))
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;") for part in parts)


def code(text: str) -> str:
    return f"`{text}`" if text else ""


def prose(docstring: str | None) -> str:
    """A docstring as Markdown: literals in single backticks, indented parts as code blocks."""
    text = inspect.cleandoc(docstring or "")
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text).replace("``", "`")
    return re.sub(r"\n\n((?: {4}.*(?:\n|$))+)", _as_block, text).replace("<", "&lt;")


def _as_block(found: re.Match[str]) -> str:
    return f"\n\n```text\n{inspect.cleandoc(found[1])}\n```\n"


def summary(docstring: str | None) -> str:
    """The first paragraph of a docstring in one line."""
    return " ".join(prose(docstring).partition("\n\n")[0].split())


def first_sentence(docstring: str | None) -> str:
    """The first sentence of a docstring, without its period."""
    return re.split(r"(?<=\.)\s", summary(docstring), maxsplit=1)[0].rstrip(".")


def anchor(heading: str) -> str:
    """The id that both the docs site and the code host give a heading of letters, digits, spaces and slashes."""
    return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", heading.replace("`", "")).strip().lower())
