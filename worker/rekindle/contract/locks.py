"""Exclusive ownership of a directory by one live process, proven by the kernel.

POSIX record locks (``lockf``): they die with their owner and are not inherited by its children, as ``flock`` is
(a dead owner's data-loader worker would keep holding it). The price: the owner must never open and close the lock
file a second time, since any close drops the lock.
"""

import errno
import fcntl
import os
import struct
from pathlib import Path

_NO_LOCK_FILE = {errno.ENOENT, errno.ELOOP, errno.EISDIR, errno.ENXIO, errno.ENOTDIR}
_FLOCK = struct.Struct("hhqqi4x")


class LockHeldError(Exception):
    """Another process owns it: ``pid``."""

    def __init__(self, path: Path, pid: int | None) -> None:
        super().__init__(f"{path} is held by process {pid}")
        self.pid = pid


class ExclusiveLock:
    """Owns ``path`` from construction until ``release`` or the end of this process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError) as error:
            pid = _holder(self._fd)
            os.close(self._fd)
            raise LockHeldError(path, pid) from error

    @property
    def is_in_place(self) -> bool:
        """Whether the locked file is still the one at its path: a removed file stays locked, and nobody sees it."""
        try:
            return os.path.samestat(os.fstat(self._fd), self._path.stat(follow_symlinks=False))
        except OSError:
            return False

    def release(self) -> None:
        os.close(self._fd)


def lock_holder(path: Path) -> int | None:
    """Pid of the live owner of ``path``, or None. It takes no lock. The owner itself must not call it (see above).

    None, too, where something else than a regular file is there: no keeper has made that.
    """
    try:
        fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NO_LOCK_FILE:
            return None
        raise
    try:
        return _holder(fd)
    finally:
        os.close(fd)


def _holder(fd: int) -> int | None:
    query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, query))
    return None if kind == fcntl.F_UNLCK else pid
