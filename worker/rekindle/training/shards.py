"""Tensors that are divided among the ranks (DTensors): each rank saves its own shards, any number of ranks read them.

In the state that rank 0 saves for all, a tensor without data (one on the device ``meta``) holds the place of each, with
its shape. A shard goes by the same path, and tells itself where in the whole it lies: so a snapshot is read without
knowing how it was divided, and nothing but tensors, numbers and text is unpickled.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeGuard

import torch
from torch import Tensor

from rekindle.training.manifest import shard_file
from rekindle.training.plain_values import rebuilt

if TYPE_CHECKING:  # two seconds to import, and nobody has a DTensor who has not imported it himself
    from torch.distributed.tensor import DTensor

Place = tuple[Any, ...]
"""The keys and positions that lead from a state to a tensor in it, such as ``("model", "0.weight")``."""

Shards = dict[Place, tuple[tuple[int, ...], Tensor]]
"""By place: the offset in the whole tensor, and this rank's part of it."""


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a tensor."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @classmethod
    def whole(cls, tensor: Tensor) -> Self:
        return cls((0,) * tensor.dim(), tuple(tensor.shape))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def common(self, other: "Box") -> "Box":
        """What both cover; its size is 0 where that is nothing."""
        starts = [max(pair) for pair in zip(self.offset, other.offset, strict=True)]
        stops = [min(pair) for pair in zip(self.stop, other.stop, strict=True)]
        shape = tuple(max(0, stop - start) for start, stop in zip(starts, stops, strict=True))
        return Box(tuple(starts), shape)

    @property
    def stop(self) -> tuple[int, ...]:
        return tuple(start + length for start, length in zip(self.offset, self.shape, strict=True))

    def within(self, outer: "Box") -> tuple[slice, ...]:
        """The index of this part in a tensor that holds ``outer``."""
        starts = [own - outer_start for own, outer_start in zip(self.offset, outer.offset, strict=True)]
        return tuple(slice(start, start + length) for start, length in zip(starts, self.shape, strict=True))


def divided(state: Any) -> dict[Place, "DTensor"]:
    """All DTensors in ``state``."""
    found: dict[Place, DTensor] = {}

    def note(place: Place, tensor: Tensor) -> Tensor:
        if _is_divided(tensor):
            found[place] = tensor
        return tensor

    _mapped(state, note)
    return found


def take_apart(state: dict[str, Any]) -> tuple[dict[str, Any], Shards | None]:
    """``state`` with the places of its DTensors held, and what this rank is to save of them; None where it has none.

    Of a shard that several ranks have, one of them saves it. Raises ValueError for a tensor that is yet to be summed up
    over the ranks.
    """
    found = divided(state)
    if not found:
        return state, None
    for place, tensor in found.items():
        if any(placement.is_partial() for placement in tensor.placements):
            raise ValueError(
                f"{_named(place)} is yet to be summed up over the ranks (it is a DTensor with a Partial placement) and "
                "cannot be saved like this: redistribute it before"
            )

    def hold(place: Place, tensor: Tensor) -> Tensor:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta") if place in found else tensor

    own = {place: _box(tensor) for place, tensor in found.items() if _saves(tensor)}
    with torch.no_grad():
        shards = {place: (box.offset, found[place].to_local()) for place, box in own.items() if box.size}
    return _mapped(state, hold), shards


def nested(shards: Shards) -> dict[str, Any]:
    """The tensors of ``shards`` in dicts, like the state that they come from."""
    state: dict[str, Any] = {}
    for place, (_, tensor) in shards.items():
        folder = state
        for key in place[:-1]:
            folder = folder.setdefault(key, {})
        folder[place[-1]] = tensor
    return state


def boxes(shards: Shards) -> dict[Place, Box]:
    """Which part of each tensor ``shards`` holds."""
    return {place: Box(offset, tuple(tensor.shape)) for place, (offset, tensor) in shards.items()}


def flaw(state: dict[str, Any], saved: list[dict[Place, Box]]) -> str | None:
    """Why ``state`` could not be put together again from what the ranks have saved, or None.

    Each element of each tensor must be there once.
    """
    whole = _held(state)
    for place, tensor in whole.items():
        parts = [own[place] for own in saved if place in own]
        covered = sum(part.size for part in parts)
        twice = any(one.common(other).size for one, other in combinations(parts, 2))
        if covered != tensor.numel() or twice:
            return f"the ranks' shards of {_named(place)} cover {covered} elements, not each of {tensor.numel()} once"
    strays = [place for own in saved for place in own if place not in whole]
    return f"rank 0 has no {_named(strays[0])}, of which another rank has a shard" if strays else None


class ShardFiles:
    """The shards of all ranks in the folder of a snapshot. Only what is asked for is read from the disk."""

    def __init__(self, folder: Path, world_size: int) -> None:
        self._ranks: list[Shards] = [
            torch.load(folder / shard_file(rank), map_location="cpu", mmap=True, weights_only=True)
            for rank in range(world_size)
        ]

    def read(self, place: Place, box: Box, dtype: torch.dtype) -> Tensor:
        """A copy of one part of a tensor. Raises ValueError where the files do not have all of it."""
        found, missing = torch.empty(box.shape, dtype=dtype), box.size
        for shards in self._ranks:
            if place not in shards or not missing:
                continue
            offset, tensor = shards[place]
            own = Box(offset, tuple(tensor.shape))
            common = own.common(box)
            if common.size:
                found[common.within(box)] = tensor[common.within(own)]
                missing -= common.size
        if missing:
            raise ValueError(f"{missing} of {box.size} elements of {_named(place)} are in none of its shards")
        return found


def put_together(state: Any, layout: Mapping[Place, "DTensor"], files: ShardFiles | None = None) -> Any:
    """``state`` with a DTensor wherever ``layout`` has one, divided like it, and whole tensors at all other places.

    Tensors whose places are held are read from ``files``; no rank reads more than it takes up. Raises ValueError for
    a tensor of another shape than its layout.
    """

    def fill(place: Place, tensor: Tensor) -> Tensor:
        target = layout.get(place)
        if _is_divided(tensor) or (target is None and not tensor.is_meta):
            return tensor
        whole = Box.whole(tensor)
        if target is not None and target.shape != tensor.shape:
            raise ValueError(f"{_named(place)} has shape {whole.shape}, and here {tuple(target.shape)}")
        box = whole if target is None else _box(target)
        part = files.read(place, box, tensor.dtype) if tensor.is_meta and files else tensor[box.within(whole)]
        return part if target is None else _like(target, part)

    return _mapped(state, fill)


def _like(target: "DTensor", part: Tensor) -> Tensor:
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        part.to(target.device),
        target.device_mesh,
        target.placements,
        run_check=False,
        shape=target.shape,
        stride=target.stride(),
    )


def _box(tensor: "DTensor") -> Box:
    """The part of this rank, which may be empty."""
    if tensor.device_mesh.get_coordinate() is None:
        return Box((0,) * tensor.dim(), (0,) * tensor.dim())
    (chunk,) = tensor.__create_chunk_list__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return Box(tuple(chunk.offsets), tuple(chunk.sizes))


def _saves(tensor: "DTensor") -> bool:
    """What is saved is the tensor of rank 0: by the ranks of its mesh, and of those with the same shard by the first.

    On another mesh lies another tensor, most often an equal one: with tensor parallelism, say, a layer that is not
    split has a mesh at each place of a split one.
    """
    coordinate = tensor.device_mesh.get_coordinate()
    if coordinate is None or not bool((tensor.device_mesh.mesh == 0).any()):
        return False
    return not any(
        own for own, placement in zip(coordinate, tensor.placements, strict=True) if placement.is_replicate()
    )


def _is_divided(tensor: Tensor) -> TypeGuard["DTensor"]:
    return hasattr(type(tensor), "__create_chunk_list__")


def _held(state: dict[str, Any]) -> dict[Place, Tensor]:
    found: dict[Place, Tensor] = {}

    def note(place: Place, tensor: Tensor) -> Tensor:
        if tensor.is_meta:
            found[place] = tensor
        return tensor

    _mapped(state, note)
    return found


def _mapped(value: Any, change: Callable[[Place, Tensor], Tensor], place: Place = ()) -> Any:
    """``value`` with ``change`` made to every tensor in its dicts, lists and tuples."""
    if isinstance(value, Tensor):
        return change(place, value)
    if isinstance(value, dict):
        return rebuilt(value, {key: _mapped(item, change, (*place, key)) for key, item in value.items()})
    if type(value) in (list, tuple):
        return type(value)([_mapped(item, change, (*place, index)) for index, item in enumerate(value)])
    return value


def _named(place: Place) -> str:
    return "/".join(str(key) for key in place)
