"""The pages of the documentation, their fenced code blocks, and the commands that they show."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
"""The root of the repository."""

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
_SHELLS = ("bash", "sh", "shell", "console")


@dataclass(frozen=True)
class Block:
    """``line`` is that of the opening fence, from 1."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """README.md, CONTRIBUTING.md, CHANGELOG.md, and every page in docs/ and deploy/."""
    return [*sorted(ROOT.glob("*.md")), ROOT / "deploy" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


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
