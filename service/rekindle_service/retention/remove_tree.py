"""Removal of a directory that a job has filled: whatever its depth, size, modes and links."""

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_REASONS = 5


@dataclass(slots=True)
class Removal:
    """What ``remove_tree`` has done. ``done``: nothing is left."""

    done: bool = False
    failures: int = 0  # entries that could not be removed
    reasons: list[str] = field(default_factory=list)  # of the first of them

    def fail(self, name: str, error: OSError) -> None:
        self.failures += 1
        if len(self.reasons) < _MAX_REASONS:
            self.reasons.append(f"{name}: {error.strerror}")

    @property
    def reason(self) -> str:
        """One line for people; empty where nothing has failed."""
        more = self.failures - len(self.reasons)
        return "; ".join(self.reasons) + (f"; and {more} more" if more > 0 else "")


def remove_tree(root: Path, stopped: Callable[[], bool] = lambda: False) -> Removal:
    """Remove ``root`` and all in it; what cannot be removed stays and is reported.

    Each directory is moved up into ``root`` before it is emptied: no path gets long, nothing recurses, and a file
    system that is mounted somewhere below keeps its content, since the kernel moves no mount point. Directories without
    write permission get it; links are removed, never followed. ``stopped`` ends the work early.
    """
    removal = Removal()
    try:
        with _opened(root) as top:
            _empty(top, removal, stopped)
        root.rmdir()
    except FileNotFoundError:
        removal.done = True
    except NotADirectoryError:  # a link, or a file
        _remove_file(root, removal)
    except OSError as error:
        if not removal.failures and not stopped():
            removal.fail(root.name, error)
    else:
        removal.done = True
    return removal


def _remove_file(path: Path, removal: Removal) -> None:
    try:
        path.unlink(missing_ok=True)
        removal.done = True
    except OSError as error:
        removal.fail(path.name, error)


def _empty(top: int, removal: Removal, stopped: Callable[[], bool]) -> None:
    """Remove the content of the directory ``top``."""
    moved = _Names()
    waiting = list(_sweep(top, top, moved, removal, stopped))
    while waiting and not stopped():
        name = waiting.pop()
        try:
            with _opened(name, top) as directory:
                waiting += _sweep(directory, top, moved, removal, stopped)
            os.rmdir(name, dir_fd=top)
        except OSError as error:
            if not removal.failures:
                removal.fail(name, error)


def _sweep(directory: int, top: int, moved: "_Names", removal: Removal, stopped: Callable[[], bool]) -> Iterator[str]:
    """Remove the files in ``directory``; move its directories to ``top`` and return their names there."""
    with os.scandir(directory) as entries:
        for entry in entries:
            if stopped():
                return
            if directory == top and moved.has(entry.name):
                continue
            try:
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=directory)  # relative to a descriptor
                    continue
                with _opened(entry.name, directory):
                    name = moved.next()
                    os.rename(entry.name, name, src_dir_fd=directory, dst_dir_fd=top)  # likewise
                yield name
            except FileNotFoundError:
                continue
            except OSError as error:
                removal.fail(entry.name, error)


class _Names:
    """Names of moved directories that no job can have guessed."""

    def __init__(self) -> None:
        self._prefix = f".removed-{secrets.token_hex(6)}-"
        self._count = 0

    def next(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"

    def has(self, name: str) -> bool:
        return name.startswith(self._prefix)


@contextmanager
def _opened(path: Path | str, within: int | None = None) -> Iterator[int]:
    """A descriptor of a directory that its owner may read and write from now on. Raises OSError for a link."""
    handle = os.open(path, os.O_PATH | _DIRECTORY, dir_fd=within)
    try:
        if os.fstat(handle).st_mode & stat.S_IRWXU != stat.S_IRWXU:
            os.chmod(f"/proc/self/fd/{handle}", stat.S_IRWXU)  # noqa: PTH101  # no call changes it by O_PATH descriptor
        fd = os.open(".", os.O_RDONLY | _DIRECTORY, dir_fd=handle)
    finally:
        os.close(handle)
    try:
        yield fd
    finally:
        os.close(fd)
