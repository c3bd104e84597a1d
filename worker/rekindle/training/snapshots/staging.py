"""A copy of a state in host memory, taken in the time of a memory copy, so that training continues at once."""

import copy
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from rekindle.training.snapshots.state_files import copy_mapping, to_scalar

_Key = tuple[Any, ...]
_Copy = tuple[Tensor, Tensor]  # into, from

_CHUNK = 8 << 20  # bytes that one thread copies at a time
_MAX_THREADS = 4  # more than a memory bus needs


class Staging:
    """Buffers that are filled again for every snapshot: fresh memory would cost several times the copy itself.

    One copy at a time: the next one overwrites it. The memory is pinned where the tensors are on a GPU.

    One core copies far less than the memory could give (170 MB in 27 ms here, two cores in 14), torchrun lets each
    rank compute with one thread, and the other ranks wait for this one: so their cores copy too. Measured and
    useless once the buffers exist: one flat buffer, huge pages, smaller chunks.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}
        self._filled: dict[str, Tensor] = {}
        self._copies: dict[_Key, Tensor] = {}
        self._pending: list[_Copy] = []

    def copy(self, state: dict[str, Any]) -> dict[str, Any]:
        """Copy ``state`` as it is now. Tensors that are one and the same, such as tied weights, stay one in the copy.

        An object of a class that ``torch.load`` does not trust is passed on unchanged, to be refused there.
        """
        self._filled, self._copies, self._pending = {}, {}, []
        copied: dict[str, Any] = self._copy(state, "")
        _copy_all(self._pending)
        for device in {key[0] for key in self._copies if key[0].type == "cuda"}:
            torch.cuda.synchronize(device)
        self._buffers, self._copies, self._pending = self._filled, {}, []
        return copied

    @property
    def bytes(self) -> int:
        """Size of the last copy."""
        return sum(tensor.nbytes for tensor in self._buffers.values())

    def _copy(self, value: Any, path: str) -> Any:
        if isinstance(value, Tensor):
            return self._copy_tensor(value, path)
        if isinstance(value, dict):
            return copy_mapping(
                value, {to_scalar(key): self._copy(item, f"{path}/{key!r}") for key, item in value.items()}
            )
        if type(value) in (list, tuple):
            return type(value)([self._copy(item, f"{path}/{index}") for index, item in enumerate(value)])
        if isinstance(value, bytearray | set) or type(value) in torch.serialization.get_safe_globals():
            return copy.deepcopy(value)
        return to_scalar(value)

    def _copy_tensor(self, tensor: Tensor, path: str) -> Tensor:
        if tensor.is_meta:
            return tensor
        if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
            return tensor.detach().cpu().clone()
        key = (tensor.device, tensor.dtype, tensor.data_ptr(), tensor.shape, tensor.stride())
        if tensor.numel() and key in self._copies:
            return self._copies[key]
        buffer = self._buffers.get(path)
        if buffer is None or (buffer.shape, buffer.dtype) != (tensor.shape, tensor.dtype):
            buffer = torch.empty_like(tensor, device="cpu", requires_grad=False, pin_memory=tensor.is_cuda)
        if tensor.is_cuda:
            buffer.copy_(tensor.detach(), non_blocking=True)
        else:
            self._pending += _chunks(buffer, tensor.detach())
        self._filled[path] = self._copies[key] = buffer
        return buffer


def _copy_all(copies: list[_Copy]) -> None:
    """Copy the largest first, so that no thread is left with a large one at the end."""
    queue = iter(sorted(copies, key=lambda pair: pair[0].nbytes, reverse=True))
    threads = min(len(os.sched_getaffinity(0)), _MAX_THREADS) // torch.get_num_threads()
    if threads <= 1 or len(copies) <= 1:
        _copy_from(queue)
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(_copy_from, queue) for _ in range(threads)]:
            done.result()


def _copy_from(queue: Iterator[_Copy]) -> None:
    """Copy pairs of ``queue`` in this thread: torch releases the interpreter lock, and an iterator's next is atomic."""
    for buffer, tensor in queue:
        buffer.copy_(tensor)


def _chunks(buffer: Tensor, tensor: Tensor) -> list[_Copy]:
    """Split a large tensor, such as an embedding, that must not be left to one thread."""
    if tensor.nbytes <= _CHUNK or not (buffer.is_contiguous() and tensor.is_contiguous()):
        return [(buffer, tensor)]
    count = -(-tensor.nbytes // _CHUNK)
    return list(zip(buffer.view(-1).chunk(count), tensor.view(-1).chunk(count), strict=True))
