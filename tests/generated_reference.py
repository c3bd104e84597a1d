"""The pages of ``docs/reference``, each of them generated from the code.

``python tests/generated_reference.py`` (or ``make generate``) writes them; ``docs/test_reference.py`` compares them.
"""

from collections.abc import Callable, Iterator

from doc_pages import ROOT
from docs.reference import (
    cli,
    environment_variables,
    errors,
    event_types,
    exit_codes,
    metrics,
    python_api,
    rest,
    settings,
)

DIRECTORY = ROOT / "docs" / "reference"

PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "cli.md": cli.lines,
    "environment.md": environment_variables.lines,
    "errors.md": errors.lines,
    "events.md": event_types.lines,
    "exit-codes.md": exit_codes.lines,
    "metrics.md": metrics.lines,
    "python.md": python_api.lines,
    "rest.md": rest.lines,
    "settings.md": settings.lines,
}


def text_of(page: str) -> str:
    """What the page must be."""
    return "\n".join(PAGES[page]()).rstrip() + "\n"


if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    for name in PAGES:
        (DIRECTORY / name).write_text(text_of(name))
