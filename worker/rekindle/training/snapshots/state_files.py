"""The state files of a snapshot, and files of plain tensors that other programs read: torch's, and safetensors."""

import copy
import hashlib
import io
import os
import pickle
from collections import Counter, OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any, cast

import torch
from torch import Tensor

from rekindle.contract.run_dir.snapshot_dir import SnapshotFile

SAFETENSORS = ".safetensors"
_SCALARS = (type(None), bool, int, float, complex, str, bytes, bytearray)
_CONTAINERS = (dict, OrderedDict, Counter, list, tuple, set, torch.Size)


def write_state(path: Path, state: dict[str, Any]) -> SnapshotFile:
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
    return SnapshotFile(hashing.written, hashing.sha256.hexdigest())


def read_state(path: Path) -> dict[str, Any]:
    """Read the state in ``path``, its tensors on the CPU. Nothing in the file can run code."""
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
    """Read what ``path`` holds, by its suffix; nothing in the file can run code.

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
    """Write ``tensors``; those that share memory, such as tied weights, are written once for each name."""
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


def copy_mapping(like: dict[Any, Any], items: dict[Any, Any]) -> dict[Any, Any]:
    """Make a dict of the class of ``like``, such as the OrderedDict of a module's state, that holds ``items``.

    Items are assigned, since ``update`` of a Counter (the milestones of MultiStepLR) adds to what is there.
    """
    made = copy.copy(like)
    made.clear()
    for key, item in items.items():
        made[key] = item
    return made


def to_scalar(value: Any) -> Any:
    """Convert a number of numpy to Python's, where that is exact, even in how later sums round; else return it.

    A schedule or a metric that computes with numpy puts such numbers into its state unnoticed.
    """
    if type(value).__module__ != "numpy":
        return value
    import numpy as np

    exact = isinstance(value, np.float64 | np.integer | np.bool_ | np.str_) and not isinstance(value, np.timedelta64)
    return value.item() if exact else value


def find_unsafe(value: Any, path: str = "") -> str | None:
    """Find where ``value`` holds what could not be loaded again, and of which class; None where nothing is found."""
    if isinstance(value, Tensor) or type(value) in _SCALARS or type(value).__module__ == "torch":
        return None
    if type(value) in torch.serialization.get_safe_globals():
        return None
    if type(value) not in _CONTAINERS:
        return f"{path} is a {type(value).__module__}.{type(value).__qualname__}"
    items: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else enumerate(value)
    inner = (find_unsafe(item, f"{path}/{key}" if path else str(key)) for key, item in items)
    return next((found for found in inner if found is not None), None)
