"""Which files of a directory are no code: patterns of the request, `.rekindleignore`, and `.gitignore` on request."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pathspec import GitIgnoreSpec

from rekindle.contract.safe_open import open_regular

IGNORE_FILE = ".rekindleignore"
_MAX_BYTES = 1 << 20  # of a file of patterns


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """What a person may choose about the copy of the code; ``exclude`` has patterns as in a `.gitignore`."""

    exclude: Sequence[str] = ()
    gitignore: bool = False
    keep_links: bool = False


class PatternError(Exception):
    """A pattern cannot be parsed; the message names it, and the file it is in."""


def parse_patterns(lines: Sequence[str], source: str) -> GitIgnoreSpec:
    """Raises PatternError, which names ``source``."""
    try:
        return GitIgnoreSpec.from_lines(lines, backend="simple")  # the others read no name that is not UTF-8
    except ValueError as error:
        raise PatternError(f"{source}: {error}") from error


@dataclass(slots=True)
class IgnoreRules:
    """The rules of one directory tree. Call ``enter`` for each directory before ``excludes`` for what is in it.

    The first rule that matches decides: the request's patterns, then `.rekindleignore`, then `.gitignore`, the file of
    a deeper directory before that of its parent. Raises PatternError, and OSError of the reading.
    """

    root: Path
    options: CopyOptions
    _requested: GitIgnoreSpec = field(init=False)
    _files: dict[tuple[str, Path], GitIgnoreSpec] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._requested = parse_patterns(self.options.exclude, "exclude")
        if self.options.gitignore:
            for parent in _parents_in_repository(self.root):
                self._read(parent / ".gitignore", parent)

    def enter(self, directory: Path, descriptor: int) -> None:
        """``directory`` is absolute, in ``root`` or ``root`` itself, and open as ``descriptor``."""
        self._read(IGNORE_FILE, directory, descriptor)
        if self.options.gitignore:
            self._read(".gitignore", directory, descriptor)

    def excludes(self, path: Path, *, is_directory: bool) -> bool:
        """``path`` is absolute. What is in an excluded directory is never asked about."""
        for base, patterns in self._rules_for(path):
            matched = patterns.check_file(f"{path.relative_to(base)}{'/' if is_directory else ''}").include
            if matched is not None:
                return matched
        return False

    def _rules_for(self, path: Path) -> Iterator[tuple[Path, GitIgnoreSpec]]:
        yield self.root, self._requested
        for name in (IGNORE_FILE, ".gitignore"):
            for parent in path.parents:
                if (patterns := self._files.get((name, parent))) is not None:
                    yield parent, patterns

    def _read(self, file: str | Path, directory: Path, descriptor: int | None = None) -> None:
        """A link is not followed: the message about a wrong pattern would show what it leads to."""
        with suppress(FileNotFoundError), open_regular(file, descriptor) as reader:
            text = reader.read(_MAX_BYTES).decode(errors="surrogateescape")
            name = Path(file).name
            self._files[name, directory] = parse_patterns(text.splitlines(), str(directory / name))


def _parents_in_repository(root: Path) -> list[Path]:
    """The directories above ``root`` in the same git repository."""
    for number, directory in enumerate([root, *root.parents]):
        if (directory / ".git").exists():
            return list(root.parents)[:number]
    return []
