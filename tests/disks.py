"""Small disks to fill up, to forbid and to cut off: real file systems, where this process may mount any."""

import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
_WITHOUT_THE_JOURNAL = struct.pack("I", 2)  # EXT4_GOING_FLAGS_NOLOGFLUSH: nothing more reaches the disk


@contextmanager
def tmpfs(folder: Path, size: str) -> Iterator[None]:
    """A disk of ``size`` at ``folder``. Skips the test where there can be none."""
    _mount(folder, "-t", "tmpfs", "-o", f"size={size}", "tmpfs")
    try:
        yield
    finally:
        unmount(folder)


def remount(folder: Path, *, writable: bool) -> None:
    subprocess.run(["mount", "-o", f"remount,{'rw' if writable else 'ro'}", str(folder)], check=True)


def unmount(folder: Path) -> None:
    subprocess.run(["umount", str(folder)], check=True)


class Ext4:
    """A real ext4 in a file, mounted at ``folder``, whose power can be cut."""

    def __init__(self, image: Path, folder: Path, megabytes: int) -> None:
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("mkfs.ext4 is not installed")
        self._image, self.folder = image, folder
        with image.open("wb") as file:
            file.truncate(megabytes << 20)
        subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)

    def plug_in(self) -> None:
        """A copy of what has reached the disk, as a file system of its own.

        The mount namespace of another test may hold on to the one that was cut off, which would come back as it is.
        """
        worn, self._image = self._image, self._image.with_suffix(f".{time.monotonic_ns()}")
        shutil.copyfile(worn, self._image)
        worn.unlink()
        _mount(self.folder, "-t", "ext4", "-o", "loop", str(self._image))

    def cut_off(self) -> None:
        """The power fails: what was not made durable is lost, and every later call fails."""
        fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, _WITHOUT_THE_JOURNAL)
        finally:
            os.close(fd)

    def unplug(self) -> None:
        unmount(self.folder)


def _mount(folder: Path, *options: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    folder.mkdir(exist_ok=True)
    ended = subprocess.run(["mount", *options, str(folder)], capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        pytest.skip(f"this machine mounts no such disk: {ended.stderr.strip()}")
