"""The copy of the user's code that a job keeps: edits after submit never reach it."""

import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rekindle.contract.files import fsync_directory

MAX_BYTES = 200 * 1000 * 1000
MAX_FILES = 20_000
EXCLUDED = frozenset({".git", ".venv", "venv", "__pycache__", "node_modules"})
_SIGNS_OF_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")  # of venv and conda, whatever the directory is called


class CodeError(Exception):
    """The code cannot be taken as it is; ``rule`` and ``hint`` say why and what helps."""

    def __init__(self, rule: str, hint: str) -> None:
        super().__init__(f"{rule}; {hint}")
        self.rule = rule
        self.hint = hint


class CodeCopyError(CodeError):
    """The directory cannot be copied or packed."""


@dataclass(slots=True)
class Inventory:
    """What there is to copy; paths are relative to the source."""

    directories: list[Path] = field(default_factory=list)
    files: dict[Path, int] = field(default_factory=dict)  # size in bytes
    links: dict[Path, str] = field(default_factory=dict)  # text of the link in the copy

    @property
    def bytes(self) -> int:
        return sum(self.files.values())


def copy_code(source: Path, target: Path, *, exclude: Path) -> None:
    """Copy ``source`` to the new directory ``target``, durably.

    Excluded: version control, virtual environments, caches, compiled files, sockets and FIFOs, and the directory
    ``exclude`` (rekindle's own home). Links that stay within ``source`` are kept, relative; one that leaves it is
    refused, since what it shows could change or be anything. Raises CodeCopyError, and OSError of the copying itself.
    """
    root = Path(os.path.realpath(source))
    inventory = scan_tree(root, Path(os.path.realpath(exclude)))
    target.mkdir(mode=0o700)
    for directory in inventory.directories:
        (target / directory).mkdir(mode=0o700)
    for path in inventory.files:
        _copy_file(root / path, target / path)
    for path, text in inventory.links.items():
        (target / path).symlink_to(text)
    for directory in [*reversed(inventory.directories), Path()]:
        fsync_directory(target / directory)


def scan_tree(root: Path, exclude: Path) -> Inventory:
    """What belongs to the code in ``root``; both are real paths. Raises CodeCopyError."""
    inventory = Inventory()
    try:
        for entry in _walk(root, exclude):
            _enter(inventory, root, entry)
            if len(inventory.files) > 5 * MAX_FILES:
                break  # far too many already: enough to name the biggest
    except OSError as error:
        raise CodeCopyError("must be readable throughout", f"{error.filename}: {error.strerror}") from error
    if len(inventory.files) > MAX_FILES or inventory.bytes > MAX_BYTES:
        raise _too_big(inventory)
    return inventory


def _walk(root: Path, exclude: Path) -> Iterator[os.DirEntry[str]]:
    """Every entry that belongs to the code, each directory before what is in it."""
    directories = [root]
    while directories:
        with os.scandir(directories.pop()) as entries:
            for entry in entries:
                if entry.name in EXCLUDED or entry.name.endswith(".pyc") or Path(entry.path) == exclude:
                    continue
                if _is_environment(Path(entry.path)):
                    continue
                yield entry
                if entry.is_dir(follow_symlinks=False):
                    directories.append(Path(entry.path))


def _is_environment(path: Path) -> bool:
    """Whether Python and packages are installed there, which are no code of the user's and full of links elsewhere."""
    return any((path / sign).exists() for sign in _SIGNS_OF_ENVIRONMENTS)


def _enter(inventory: Inventory, root: Path, entry: os.DirEntry[str]) -> None:
    path = Path(entry.path).relative_to(root)
    mode = entry.stat(follow_symlinks=False)
    if stat.S_ISLNK(mode.st_mode):
        inventory.links[path] = _inner_link(root, Path(entry.path))
    elif stat.S_ISDIR(mode.st_mode):
        inventory.directories.append(path)
    elif stat.S_ISREG(mode.st_mode):
        inventory.files[path] = mode.st_size


def _inner_link(root: Path, link: Path) -> str:
    """The link as a relative one that stays right wherever the directory is copied to."""
    goal = Path(os.path.realpath(link))
    if not goal.is_relative_to(root):
        raise CodeCopyError(
            "must not link out of itself",
            f"{link.relative_to(root)} points to {goal}: copy what is needed here, or read it by its own path",
        )
    return os.path.relpath(goal, link.parent)


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("xb") as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
        writer.flush()
        shutil.copystat(source, target)
        os.fsync(writer.fileno())


def _too_big(inventory: Inventory) -> CodeCopyError:
    """Names what makes the directory so big, by the first part of the path."""
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for path, size in inventory.files.items():
        sizes[path.parts[0]] += size
        counts[path.parts[0]] += 1
    weight = sizes if inventory.bytes > MAX_BYTES else counts
    biggest = ", ".join(
        f"{name} ({sizes[name] / 1e6:.0f} MB, {counts[name]} files)" for name, _ in weight.most_common(3)
    )
    return CodeCopyError(
        f"at most {MAX_BYTES // 1_000_000} MB in {MAX_FILES} files",
        f"biggest here: {biggest}. Keep data outside the code directory and give the script its path, "
        "or submit a smaller directory (--code)",
    )
