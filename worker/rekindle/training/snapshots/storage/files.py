"""The state files of a snapshot: written with their checksums, and read without running code."""

import hashlib
import io
import os
from pathlib import Path
from typing import IO, Any, cast

import torch

from rekindle.contract.run_dir.snapshots import FileRecord


def write_state(path: Path, state: dict[str, Any]) -> FileRecord:
    """Write ``state`` durably. Raises OSError where the disk does not accept it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        hashing = HashingWriter(file)
        try:
            torch.save(state, cast("IO[bytes]", hashing))
        except RuntimeError as error:
            if hashing.error is not None:  # torch.save replaces the error of a failed write by its own
                raise hashing.error from error
            raise
        file.flush()
        os.fsync(file.fileno())
    return FileRecord(hashing.written, hashing.sha256.hexdigest())


def read_state(path: Path) -> dict[str, Any]:
    """The state in ``path``, its tensors on the CPU. Nothing in the file can run code."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def unsafe_globals(path: Path) -> list[str]:
    """Classes and functions in ``path`` that ``read_state`` would refuse. Takes a millisecond: no tensor is read."""
    return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))


class HashingWriter(io.RawIOBase):
    """Passes bytes on to ``file`` and hashes them on the way; torch.save writes front to back."""

    def __init__(self, file: io.BufferedWriter) -> None:
        super().__init__()
        self._file = file
        self.sha256 = hashlib.sha256()
        self.written = 0
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            self._file.write(data)
        except OSError as error:
            self.error = error
            raise
        self.sha256.update(data)
        size = memoryview(data).nbytes
        self.written += size
        return size
