"""The copy of the user's code that a job keeps: edits after submit never reach it. Also packed, for a remote server."""

import errno
import gzip
import os
import stat
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO

from rekindle.contract.files import fsync_directory
from rekindle.contract.safe_open import open_directory, open_in
from rekindle_service.jobs.packaging.ignore_rules import IGNORE_FILE, CopyOptions, IgnoreRules, PatternError
from rekindle_service.submission import raise_if_lacking

MAX_BYTES = 200 * 1000 * 1000
MAX_FILES = 20_000
EXCLUDED = frozenset({".git", ".venv", "venv", "__pycache__", "node_modules"})
_SIGNS_OF_ENVIRONMENTS = ("pyvenv.cfg", "conda-meta")  # of venv and conda, whatever the directory is called
_MAX_SOURCE = 1 << 20  # bytes of a Python file that is searched
_MAX_LINKS = 40  # one after the other, as Linux follows them
_SWAPPED = {errno.ENOENT, errno.ENOTDIR, errno.ELOOP}
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
    files: dict[Path, os.stat_result] = field(default_factory=dict)
    links: dict[Path, str] = field(default_factory=dict)  # text of the link in the copy

    @property
    def bytes(self) -> int:
        return sum(status.st_size for status in self.files.values())

    def has_file(self, path: Path) -> bool:
        """Whether the copy has a file at ``path``, or a link that leads to one of its files."""
        for _ in range(_MAX_LINKS):
            if path in self.files:
                return True
            link = next((each for each in (path, *path.parents) if each in self.links), None)
            if link is None:
                return False
            path = Path(os.path.normpath(link.parent / self.links[link] / path.relative_to(link)))
        return False


@dataclass(frozen=True, slots=True)
class CodeTree:
    """A directory of code, held open: what a person swaps in it meanwhile for a link is never followed."""

    root: Path  # as it was found
    directory: int

    def open(self, path: Path, found: os.stat_result) -> BinaryIO:
        """The file that was ``found`` at ``path``, and no other one. Raises CodeCopyError and OSError."""
        try:
            file = open_in(self.directory, path)
        except OSError as error:
            if error.errno in _SWAPPED:
                raise CodeCopyError("must not change while it is copied", f"{path} did: submit again") from error
            raise
        if not os.path.samestat(os.fstat(file.fileno()), found):
            file.close()
            raise CodeCopyError("must not change while it is copied", f"{path} did: submit again")
        return file

    def python_sources(self, found: Inventory) -> Iterator[bytes]:
        """The Python files that are to be copied. All files are opened, so that this raises what ``copy_code`` does."""
        for path, status in found.files.items():
            with self.open(path, status) as file:
                if path.suffix == ".py":
                    yield file.read(_MAX_SOURCE)


@contextmanager
def open_tree(source: Path) -> Iterator[CodeTree]:
    """Raises CodeCopyError where ``source`` changes meanwhile, and OSError where this machine lacks something."""
    try:
        root = Path(os.path.realpath(source))
        directory = open_directory(root)
    except OSError as error:
        raise_if_lacking(error)
        raise CodeCopyError("must be a directory that can be read", f"{source}: {error.strerror}") from error
    try:
        yield CodeTree(root, directory)
    finally:
        os.close(directory)


@contextmanager
def open_code(
    source: Path, *, exclude: Path, options: CopyOptions = _ALL, check: Callable[[Path], None] | None = None
) -> Iterator[tuple[CodeTree, Inventory]]:
    """What there is to copy of ``source``, held open.

    Excluded: version control, virtual environments, caches, compiled files, sockets and FIFOs, the directory
    ``exclude`` (rekindle's own home), and what ``options`` and ignore files name. Links that stay within ``source`` are
    kept, relative; one that leaves it is refused unless ``options`` keeps it, since what it shows could change or be
    anything. ``check`` gets the directory that is copied, which ``source`` may have been swapped for, and raises where
    it must not be. Raises CodeCopyError.
    """
    with open_tree(source) as tree:
        if check is not None:
            check(tree.root)
        yield tree, scan_tree(tree, Path(os.path.realpath(exclude)), options)


def copy_code(tree: CodeTree, inventory: Inventory, target: Path) -> None:
    """Copy it to the new directory ``target``, durably. Raises CodeCopyError, and OSError of the copying itself."""
    target.mkdir(mode=0o700)
    for directory in inventory.directories:
        (target / directory).mkdir(mode=0o700)
    for path, found in inventory.files.items():
        _copy_file(tree, path, found, target / path)
    for path, text in inventory.links.items():
        (target / path).symlink_to(text)
    for directory in [*reversed(inventory.directories), Path()]:
        fsync_directory(target / directory)


def scan_tree(tree: CodeTree, exclude: Path, options: CopyOptions = _ALL) -> Inventory:
    """What belongs to the code; ``exclude`` is a real path. Raises CodeCopyError."""
    inventory = Inventory()
    try:
        for path, status in _walk(tree, exclude, IgnoreRules(tree.root, options)):
            _enter(inventory, tree.root, path, status, keep_links=options.keep_links)
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


def _walk(tree: CodeTree, exclude: Path, rules: IgnoreRules) -> Iterator[tuple[Path, os.stat_result]]:
    """Every path that belongs to the code, relative, each directory before what is in it."""
    directories = [Path()]
    while directories:
        directory = directories.pop()
        fd = open_directory(directory, tree.directory)
        try:
            rules.enter(tree.root / directory, fd)
            with os.scandir(fd) as entries:
                for entry in entries:
                    path, status = directory / entry.name, entry.stat(follow_symlinks=False)
                    is_directory = stat.S_ISDIR(status.st_mode)
                    if entry.name in EXCLUDED or entry.name.endswith(".pyc") or tree.root / path == exclude:
                        continue
                    if is_directory and _is_environment(entry.name, fd):
                        continue
                    if rules.excludes(tree.root / path, is_directory=is_directory):
                        continue
                    yield path, status
                    if is_directory:
                        directories.append(path)
        finally:
            os.close(fd)


def _is_environment(name: str, directory: int) -> bool:
    """Whether Python and packages are installed there, which are no code of the user's and full of links elsewhere."""
    return any(os.access(f"{name}/{sign}", os.F_OK, dir_fd=directory) for sign in _SIGNS_OF_ENVIRONMENTS)


def _enter(inventory: Inventory, root: Path, path: Path, status: os.stat_result, *, keep_links: bool) -> None:
    if stat.S_ISLNK(status.st_mode):
        inventory.links[path] = _link_text(root, root / path, keep_links=keep_links)
    elif stat.S_ISDIR(status.st_mode):
        inventory.directories.append(path)
    elif stat.S_ISREG(status.st_mode):
        inventory.files[path] = status


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


def _copy_file(tree: CodeTree, path: Path, found: os.stat_result, target: Path) -> None:
    with tree.open(path, found) as reader, target.open("xb") as writer:
        copy_content(reader, writer, found)


def copy_content(reader: BinaryIO, writer: BinaryIO, found: os.stat_result) -> None:
    """Copy with mode and times, durably, at most the bytes that were found: a file may grow, or be endless as in /proc.

    Blocks are shared where the file system can.
    """
    left = found.st_size
    try:
        while left and (copied := os.copy_file_range(reader.fileno(), writer.fileno(), min(left, 1 << 30))):
            left -= copied
    except OSError:
        while left and (block := os.read(reader.fileno(), min(left, 1 << 20))):
            left -= writer.write(block)
    writer.flush()
    os.fchmod(writer.fileno(), stat.S_IMODE(found.st_mode))
    os.utime(writer.fileno(), ns=(found.st_atime_ns, found.st_mtime_ns))
    os.fsync(writer.fileno())


def _too_big(inventory: Inventory) -> CodeCopyError:
    """Names what makes the directory so big, by the first part of the path."""
    sizes: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for path, status in inventory.files.items():
        sizes[path.parts[0]] += status.st_size
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


_FASTEST = 1  # of gzip: code is small, and the network mostly faster than a better compression


def pack_code(directory: Path, archive: IO[bytes], *, exclude: Path, options: CopyOptions) -> Inventory:
    """Write ``directory`` as tar.gz, with the rules and limits of ``copy_code``; returns what went into it.

    The same files give the same bytes, and so the same bundle: owners and times are omitted. Raises CodeCopyError,
    and OSError of the writing.
    """
    with (
        open_tree(directory) as tree,
        gzip.GzipFile(fileobj=archive, mode="wb", compresslevel=_FASTEST, mtime=0, filename="") as packed,
        tarfile.open(fileobj=packed, mode="w|") as tar,
    ):
        inventory = scan_tree(tree, Path(os.path.realpath(exclude)), options)
        for path in sorted(inventory.directories):
            tar.addfile(_described(path, tarfile.DIRTYPE, 0o700))
        for path, found in sorted(inventory.files.items()):
            _add_file(tar, tree, path, found)
        for path, text in sorted(inventory.links.items()):
            link = _described(path, tarfile.SYMTYPE, 0o777)
            link.linkname = text
            tar.addfile(link)
    return inventory


def _add_file(tar: tarfile.TarFile, tree: CodeTree, path: Path, found: os.stat_result) -> None:
    try:
        with tree.open(path, found) as file:
            status = os.fstat(file.fileno())
            entry = _described(path, tarfile.REGTYPE, 0o755 if status.st_mode & 0o100 else 0o644)
            entry.size = status.st_size
            tar.addfile(entry, file)
    except OSError as error:
        hint = f"{path}: {error.strerror or error}: is it being written just now?"
        raise CodeCopyError("must be readable throughout", hint) from error


def _described(path: Path, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(str(path))
    entry.type, entry.mode = kind, mode
    return entry
