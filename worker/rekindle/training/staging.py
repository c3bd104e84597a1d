"""A copy of a state in host memory, taken in the time of a memory copy, so that training may go on at once."""

import copy
from typing import Any

import torch
from torch import Tensor

_Key = tuple[Any, ...]


class Staging:
    """Buffers that are filled again for every snapshot: fresh memory would cost several times the copy itself.

    One copy at a time: the next one overwrites it. The memory is pinned where the tensors lie on a GPU.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._filled: dict[str, Tensor] = {}
        self._copies: dict[_Key, Tensor] = {}

    def copy(self, state: Any) -> Any:
        """``state`` as it is now. Tensors that are one and the same, such as tied weights, stay one in the copy.

        An object of a class that ``torch.load`` does not trust is passed on as it is, to be refused there.
        """
        self._filled, self._copies = {}, {}
        with torch.no_grad():
            copied = self._copy(state, "")
        for device in {key[0] for key in self._copies if key[0].type == "cuda"}:
            torch.cuda.synchronize(device)
        self._buffers, self._copies = self._filled, {}
        return copied

    @property
    def bytes(self) -> int:
        """How much the last copy takes."""
        return sum(tensor.nbytes for tensor in self._buffers.values())

    def _copy(self, value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            return self._copy_tensor(value, path)
        if isinstance(value, dict):
            copied = copy.copy(value)  # a subclass stays one, such as the OrderedDict of a module's state
            copied.update({key: self._copy(item, f"{path}/{key!r}") for key, item in value.items()})
            return copied
        if type(value) in (list, tuple):
            return type(value)([self._copy(item, f"{path}/{index}") for index, item in enumerate(value)])
        if isinstance(value, bytearray | set) or type(value) in torch.serialization.get_safe_globals():
            return copy.deepcopy(value)
        return value

    def _copy_tensor(self, tensor: Tensor, path: str) -> Tensor:
        if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
            return tensor.detach().cpu().clone()
        place = (tensor.untyped_storage().data_ptr(), tensor.storage_offset(), tensor.shape, tensor.stride())
        key = (tensor.device, tensor.dtype, *place)
        if tensor.numel() and key in self._copies:
            return self._copies[key]
        buffer = self._buffers.get(path)
        if buffer is None or (buffer.shape, buffer.dtype) != (tensor.shape, tensor.dtype):
            buffer = torch.empty_like(tensor, device="cpu", requires_grad=False, pin_memory=tensor.is_cuda)
        buffer.copy_(tensor, non_blocking=True)
        self._filled[path] = self._copies[key] = buffer
        return buffer
