"""The state files of a snapshot, and files of plain tensors that other programs read: torch's, and safetensors."""

import hashlib
import io
import os
import pickle
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor

from rekindle.contract.run_dir.snapshots import FileRecord

SAFETENSORS = ".safetensors"


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


def read_tensors(path: Path) -> Any:
    """What ``path`` holds, by its suffix; nothing in the file can run code.

    Raises ValueError, naming the file, where it is not what its suffix says, and ModuleNotFoundError where the library
    for it is missing.
    """
    if path.suffix == SAFETENSORS:
        return _read_safetensors(path)
    try:
        return read_state(path)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(f"{path} is no torch.save file, or holds more than tensors: {error}") from error


def write_safetensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Tensors that share memory, such as tied weights, are written once for each name: the format knows no sharing."""
    from safetensors.torch import save_file

    seen: set[int] = set()
    separate: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        own = tensor.contiguous()
        start = own.untyped_storage().data_ptr()
        separate[name] = own.clone() if start in seen or own.untyped_storage().nbytes() != own.nbytes else own
        seen.add(start)
    save_file(separate, path, metadata=metadata)


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise ModuleNotFoundError(
            f"{path} needs the library safetensors, which is not installed: `pip install safetensors`, or use a file "
            "by torch.save"
        ) from error
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path} is no safetensors file, or is damaged: {error}") from error
