"""The copy of the user's code that a job keeps: edits after submit never reach it."""

import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rekindle.contract.files import fsync_directory
from rekindle_service.jobs.packaging.ignore_rules import IGNORE_FILE, CopyOptions, IgnoreRules, PatternError
from rekindle_service.jobs.resources import raise_if_lacking

MAX_BYTES = 200 * 1000 * 1000
MAX_FILES = 20_000
EXCLUDED = frozenset({".git", ".venv", "venv", "__pycache__", "node_modules"})
_SIGNS_OF_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")  # of venv and conda, whatever the directory is called
_ALL = CopyOptions()


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


def copy_code(source: Path, target: Path, *, exclude: Path, options: CopyOptions = _ALL) -> None:
    """Copy ``source`` to the new directory ``target``, durably.

    Excluded: version control, virtual environments, caches, compiled files, sockets and FIFOs, the directory
    ``exclude`` (rekindle's own home), and what ``options`` and ignore files name. Links that stay within ``source`` are
    kept, relative; one that leaves it is refused unless ``options`` keeps it, since what it shows could change or be
    anything. Raises CodeCopyError, and OSError of the copying itself.
    """
    root = Path(os.path.realpath(source))
    inventory = scan_tree(root, Path(os.path.realpath(exclude)), options)
    target.mkdir(mode=0o700)
    for directory in inventory.directories:
        (target / directory).mkdir(mode=0o700)
    for path in inventory.files:
        _copy_file(root / path, target / path)
    for path, text in inventory.links.items():
        (target / path).symlink_to(text)
    for directory in [*reversed(inventory.directories), Path()]:
        fsync_directory(target / directory)


def scan_tree(root: Path, exclude: Path, options: CopyOptions = _ALL) -> Inventory:
    """What belongs to the code in ``root``; both are real paths. Raises CodeCopyError."""
    inventory = Inventory()
    try:
        for entry in _walk(root, exclude, IgnoreRules(root, options)):
            _enter(inventory, root, entry, keep_links=options.keep_links)
            if len(inventory.files) > 5 * MAX_FILES:
                break  # far too many already: enough to name the biggest
    except PatternError as error:
        raise CodeCopyError("must have valid patterns in its ignore files", str(error)) from error
    except OSError as error:
        raise_if_lacking(error)
        raise CodeCopyError("must be readable throughout", f"{error.filename}: {error.strerror}") from error
    if len(inventory.files) > MAX_FILES or inventory.bytes > MAX_BYTES:
        raise _too_big(inventory)
    return inventory


def _walk(root: Path, exclude: Path, rules: IgnoreRules) -> Iterator[os.DirEntry[str]]:
    """Every entry that belongs to the code, each directory before what is in it."""
    directories = [root]
    while directories:
        directory = directories.pop()
        rules.enter(directory)
        with os.scandir(directory) as entries:
            for entry in entries:
                if entry.name in EXCLUDED or entry.name.endswith(".pyc") or Path(entry.path) == exclude:
                    continue
                is_directory = entry.is_dir(follow_symlinks=False)
                if _is_environment(Path(entry.path)) or rules.excludes(Path(entry.path), is_directory=is_directory):
                    continue
                yield entry
                if is_directory:
                    directories.append(Path(entry.path))


def _is_environment(path: Path) -> bool:
    """Whether Python and packages are installed there, which are no code of the user's and full of links elsewhere."""
    return any((path / sign).exists() for sign in _SIGNS_OF_ENVIRONMENTS)


def _enter(inventory: Inventory, root: Path, entry: os.DirEntry[str], *, keep_links: bool) -> None:
    path = Path(entry.path).relative_to(root)
    mode = entry.stat(follow_symlinks=False)
    if stat.S_ISLNK(mode.st_mode):
        inventory.links[path] = _link_text(root, Path(entry.path), keep_links=keep_links)
    elif stat.S_ISDIR(mode.st_mode):
        inventory.directories.append(path)
    elif stat.S_ISREG(mode.st_mode):
        inventory.files[path] = mode.st_size


def _link_text(root: Path, link: Path, *, keep_links: bool) -> str:
    """The link as a relative one that stays right wherever the directory is copied to."""
    goal = Path(os.path.realpath(link))
    if not goal.is_relative_to(root):
        if keep_links:
            return str(goal)
        name = link.relative_to(root)
        raise CodeCopyError(
            "must not link out of itself",
            f"{name} points to {goal}: read it by its own path, keep such links (--keep-links; keep_links), "
            f"or exclude it (--exclude {name})",
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
        f"biggest here: {biggest}. Leave out what is no code (--exclude {weight.most_common(1)[0][0]}, or a line in "
        f"{IGNORE_FILE}), give the script the path of its data, or submit a smaller directory (--code)",
    )
