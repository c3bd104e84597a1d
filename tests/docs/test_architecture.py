"""docs/architecture.md and CONTRIBUTING.md name files that exist, and functions that these files define or use."""

import re
from pathlib import Path

from doc_pages import ROOT

BASES = (ROOT / "service" / "rekindle_service", ROOT / "worker" / "rekindle", ROOT / "tests", ROOT)
NAMED = re.compile(r"`(?P<path>[\w./-]+\.(?:py|js|ts|html|md))(?:: (?P<names>[\w., ]+))?`")
"""``package/module.py``, or ``package/module.py: Class.method, function``."""


def named_files() -> list[tuple[str, str]]:
    pages = (ROOT / "docs" / "architecture.md", ROOT / "CONTRIBUTING.md")
    found = {match.groups(default="") for page in pages for match in NAMED.finditer(page.read_text())}
    return sorted((path, names) for path, names in found)


def file_of(path: str) -> Path | None:
    return next((base / path for base in BASES if (base / path).is_file()), None)


def test_every_named_file_exists_and_has_the_named_functions() -> None:
    missing = []
    for path, names in named_files():
        file = file_of(path)
        if file is None:
            missing.append(f"{path} is in none of the directories")
        else:
            absent = set(re.findall(r"\w+", names)) - set(re.findall(r"\w+", file.read_text()))
            missing += [f"{path} has no {name}" for name in sorted(absent)]
    assert missing == []
