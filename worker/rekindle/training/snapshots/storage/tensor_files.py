"""Files of plain tensors that other programs write and read: torch's own, and safetensors where it is installed."""

import pickle
from pathlib import Path
from typing import Any

from torch import Tensor

from rekindle.training.snapshots.storage.files import read_state

SAFETENSORS = ".safetensors"


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
