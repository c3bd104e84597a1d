"""Small disks to fill up, to forbid and to cut off: real file systems, where this process may mount any."""

import fcntl
import os
import shutil
import struct
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from e2e.waiting import until

_EXT4_IOC_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
_WITHOUT_THE_JOURNAL = struct.pack("I", 2)  # EXT4_GOING_FLAGS_NOLOGFLUSH: nothing more reaches the disk


@contextmanager
def tmpfs(directory: Path, size: str) -> Iterator[None]:
    """A disk of ``size`` at ``directory``. Skips the test where there can be none."""
    _mount(directory, "-t", "tmpfs", "-o", f"size={size}", "tmpfs")
    try:
        yield
    finally:
        unmount(directory)


def fill(directory: Path) -> Path:
    """Write a file, which is returned, until nothing more fits on the disk of ``directory``."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 4096):
            with suppress(OSError):
                while True:
                    file.write(bytes(size))
    return ballast


def remount(directory: Path, *, writable: bool) -> None:
    subprocess.run(["mount", "-o", f"remount,{'rw' if writable else 'ro'}", str(directory)], check=True)


def unmount(directory: Path) -> None:
    """Wait for processes that have done their work, and still have a file open until they are gone."""
    until(lambda: subprocess.run(["umount", str(directory)], check=False).returncode == 0, f"{directory} is idle")


class Ext4:
    """A real ext4 in a file, mounted at ``directory``, whose power can be cut."""

    def __init__(self, image: Path, directory: Path, megabytes: int) -> None:
        if shutil.which("mkfs.ext4") is None:
            pytest.skip("mkfs.ext4 is not installed")
        self._image, self.directory = image, directory
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
        _mount(self.directory, "-t", "ext4", "-o", "loop", str(self._image))

    def cut_off(self) -> None:
        """The power fails: what was not made durable is lost, and every later call fails."""
        fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(fd, _EXT4_IOC_SHUTDOWN, _WITHOUT_THE_JOURNAL)
        finally:
            os.close(fd)

    def unplug(self) -> None:
        unmount(self.directory)


def _mount(directory: Path, *options: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    directory.mkdir(exist_ok=True)
    ended = subprocess.run(["mount", *options, str(directory)], capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        pytest.skip(f"this machine mounts no such disk: {ended.stderr.strip()}")
