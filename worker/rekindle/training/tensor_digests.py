"""64-bit digests of tensors: equal where all bits are, and cheap enough to be taken while a training runs.

The bits of a tensor are read as words of 64 bits, which are added up in columns, and the columns, each times an odd
number of its own, in one sum modulo 2**64. One changed bit always changes the digest, since no odd number times a power
of two is 0; of changes in several words, those cancel out that hit the same column by opposite amounts. The order of
addition does not matter, so every device and number of threads finds the same digest.

``torch.hash_tensor`` takes a third longer and is XOR: it does not see that all values have changed their sign.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

COLUMNS = 4093  # a prime: what repeats in a tensor, repeats in other columns
_SMALL = 1 << 13  # elements up to which tensors share their operations, whose number is what they cost
_WORD = 8  # bytes
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_MASK = (1 << 64) - 1


def _mixed(index: int) -> int:
    """An odd 64-bit number, signed, that looks random (the finalizer of splitmix64)."""
    word = (index + 1) * 0x9E3779B97F4A7C15 & _MASK
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & _MASK
    word = (word ^ word >> 31) | 1
    return word - (1 << 64) if word >> 63 else word


def local_part(tensor: Tensor) -> Tensor | None:
    """What this rank holds of ``tensor``, without its graph; None of one that has no plain values."""
    local = tensor.detach()
    if isinstance(local, DTensor):
        local = local.to_local()
    return None if local.is_meta or local.layout is not torch.strided or local.is_quantized else local


def tensors_in(value: Any) -> list[Tensor]:
    """The tensors in lists, tuples and dicts."""
    if isinstance(value, Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for item in items for tensor in tensors_in(item)]


@dataclass(frozen=True, slots=True)
class _Group:
    """Small tensors of one type on one device, whose elements are multiplied and added together."""

    indices: list[int]
    owners: Tensor  # of each element the index of its tensor
    factors: Tensor  # of each element


@cache
def _factors(device: torch.device) -> Tensor:
    return torch.tensor([_mixed(index) for index in range(COLUMNS + _WORD)], device=device)


class TensorDigests:
    """Takes the digests of the same tensors again and again; what it needs for that, it computes once."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._groups: list[_Group] = []

    def take(self, tensors: Sequence[Tensor | None]) -> list[int]:
        """The digest of each tensor as a signed number, 0 for None. ``tensors`` are what ``local_part`` gives."""
        taken = [0] * len(tensors)
        bits = {index: _bits(each) for index, each in enumerate(tensors) if each is not None}
        for device in {each.device for each in bits.values()}:
            here = {index: each for index, each in bits.items() if each.device == device}
            digests = _factors(device).new_zeros(len(tensors))
            for index, each in here.items():
                if each.numel() > _SMALL:
                    digests[index] = _large(each)
            for group in self._groups_on(device, bits):
                joined = torch.cat([bits[index] for index in group.indices])
                digests.index_add_(0, group.owners, joined.to(torch.int64).mul_(group.factors))
            for index, digest in enumerate(digests.tolist()):
                taken[index] = digest if index in here else taken[index]
        return taken

    def _groups_on(self, device: torch.device, bits: dict[int, Tensor]) -> list[_Group]:
        small = {index: each for index, each in bits.items() if 0 < each.numel() <= _SMALL}
        key = tuple((index, each.dtype, each.numel(), each.device) for index, each in small.items())
        if key != self._key:
            kinds = {(each.dtype, each.device) for each in small.values()}
            self._groups = [
                _group({index: each for index, each in small.items() if (each.dtype, each.device) == kind})
                for kind in kinds
            ]
            self._key = key
        return [each for each in self._groups if each.owners.device == device]


def _group(members: dict[int, Tensor]) -> _Group:
    device = next(iter(members.values())).device
    sizes = torch.tensor([each.numel() for each in members.values()], device=device)
    owners = torch.repeat_interleave(torch.tensor(list(members), device=device), sizes)
    positions = torch.cat([torch.arange(each.numel(), device=device) for each in members.values()])
    return _Group(list(members), owners, _factors(device)[positions % COLUMNS])


def _large(bits: Tensor) -> Tensor:
    words, rest = _words(bits)
    factors, whole = _factors(bits.device), words.numel() // COLUMNS * COLUMNS
    columns = words[:whole].view(-1, COLUMNS).sum(0)
    columns[: words.numel() - whole] += words[whole:]
    total = columns.mul_(factors[:COLUMNS]).sum()
    return total + (rest.to(torch.int64) * factors[COLUMNS : COLUMNS + rest.numel()]).sum()


def _bits(tensor: Tensor) -> Tensor:
    """The elements of ``tensor`` as integers in one dimension, in the order of its indices."""
    plain = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    return plain.resolve_neg().reshape(-1).view(_INTEGERS[plain.element_size()])


def _words(bits: Tensor) -> tuple[Tensor, Tensor]:
    """The integers as words of 64 bits, and those that are left. What begins within a word is copied first."""
    each = _WORD // bits.element_size()
    whole = bits.numel() // each * each
    begin = bits[:whole]
    aligned = begin if bits.storage_offset() % each == 0 else begin.clone()
    return aligned.view(torch.int64), bits[whole:]
