"""The fenced blocks of README.md and of every page in docs/ and deploy/."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from file_tree import ROOT

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_SHELLS = ("bash", "sh", "shell", "console")


@dataclass(frozen=True)
class Block:
    """``line`` is where it begins."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "deploy" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str | None = None, page: str | None = None) -> list[Block]:
    found = [block for path in pages() for block in _blocks_of(path)]
    return [each for each in found if language in (None, each.language) and page in (None, each.page)]


def _blocks_of(path: Path) -> Iterator[Block]:
    text = path.read_text()
    for match in _BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        yield Block(str(path.relative_to(ROOT)), line, match[1], match[2])


def commands() -> list[tuple[str, str]]:
    """Every command line that is shown, with its page: without comments, joined where a backslash ends a line."""
    shown = []
    for block in blocks():
        if block.language in _SHELLS:
            lines = block.text.replace("\\\n", " ").splitlines()
            stripped = (re.sub(r"(^|\s)#.*", "", line).strip() for line in lines)
            shown += [(block.page, " ".join(line.split())) for line in stripped if line]
    return shown
