"""The files inside a snapshot: state in, digest out."""

import hashlib
import io
import os
from pathlib import Path
from typing import IO, Any, cast

import torch

from rekindle.training.manifest import FileRecord


def write_state(path: Path, state: dict[str, Any]) -> FileRecord:
    """Write ``state`` durably. Raises OSError where the disk does not take it."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "wb") as file:
        digesting = _Digesting(file)
        _torch_save(state, digesting)
        file.flush()
        os.fsync(file.fileno())
    return FileRecord(digesting.written, digesting.sha256.hexdigest())


def read_state(path: Path) -> dict[str, Any]:
    """The state in ``path``, its tensors on the CPU. Nothing in the file can run code."""
    state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    return state


def foreign_classes(path: Path) -> list[str]:
    """Classes and functions in ``path`` that ``read_state`` would refuse. Takes a millisecond: tensors are not read."""
    return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))


def _torch_save(state: dict[str, Any], file: "_Digesting") -> None:
    """torch.save hides the error of a failing write behind its own: bring it back."""
    try:
        torch.save(state, cast("IO[bytes]", file))
    except RuntimeError as error:
        if file.error is not None:
            raise file.error from error
        raise


class _Digesting(io.RawIOBase):
    """Passes bytes on to ``file`` and digests them on the way; torch.save writes front to back."""

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
