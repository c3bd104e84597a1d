"""Tensors that are sharded among the ranks (DTensors): each rank saves its own shards, any number of ranks read them.

In the state that rank 0 saves for all, a tensor without data (on the device ``meta``) stands for each, with its shape.
A shard is stored under the same key path, with its offset in the whole tensor: so a snapshot is read without knowing
how it was sharded, and nothing but tensors, numbers and text is unpickled.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor

from rekindle.contract.run_dir.snapshot_dir import shard_file
from rekindle.training.snapshots.state_files import copy_mapping

if TYPE_CHECKING:  # two seconds to import, and only a script that imported it has a DTensor
    from torch.distributed.tensor import DTensor

KeyPath = tuple[Any, ...]
"""The keys and indices that lead from a state to a tensor in it, such as ``("model", "0.weight")``."""

Shards = dict[KeyPath, tuple[tuple[int, ...], Tensor]]
"""By key path: the offset in the whole tensor, and this rank's part of it."""


@dataclass(frozen=True, slots=True)
class ShardSlice:
    """The part of a tensor from ``offset`` on."""

    offset: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def stop(self) -> tuple[int, ...]:
        return tuple(start + length for start, length in zip(self.offset, self.shape, strict=True))

    def overlap(self, other: "ShardSlice") -> "ShardSlice":
        """Slice that both cover; its size is 0 where that is nothing."""
        starts = [max(pair) for pair in zip(self.offset, other.offset, strict=True)]
        stops = [min(pair) for pair in zip(self.stop, other.stop, strict=True)]
        shape = tuple(max(0, stop - start) for start, stop in zip(starts, stops, strict=True))
        return ShardSlice(tuple(starts), shape)

    def within(self, outer: "ShardSlice") -> tuple[slice, ...]:
        """Index of this part in a tensor that holds ``outer``."""
        starts = [own - outer_start for own, outer_start in zip(self.offset, outer.offset, strict=True)]
        return tuple(slice(start, start + length) for start, length in zip(starts, self.shape, strict=True))


def find_dtensors(state: Any) -> dict[KeyPath, "DTensor"]:
    """All DTensors in ``state``."""
    return {path: tensor for path, tensor in _tensors(state).items() if _is_dtensor(tensor)}


def split_shards(state: dict[str, Any]) -> tuple[dict[str, Any], Shards | None]:
    """Replace each DTensor by a tensor without data, and return what this rank saves of them; None where it has none.

    Of a shard that several ranks have, one of them saves it. Raises ValueError for a tensor that is yet to be summed
    over the ranks.
    """
    found = find_dtensors(state)
    if not found:
        return state, None
    for path, tensor in found.items():
        if any(placement.is_partial() for placement in tensor.placements):
            raise ValueError(
                f"{_joined(path)} is yet to be summed over the ranks (it is a DTensor with a Partial placement) and "
                "cannot be saved like this: redistribute it before"
            )

    def strip(path: KeyPath, tensor: Tensor) -> Tensor:
        return torch.empty(tensor.shape, dtype=tensor.dtype, device="meta") if path in found else tensor

    own = {path: _slice_of(tensor) for path, tensor in found.items() if _saves(tensor)}
    with torch.no_grad():
        shards = {path: (part.offset, found[path].to_local()) for path, part in own.items() if part.size}
    return map_tensors(state, strip), shards


def unflatten(shards: Shards) -> dict[str, Any]:
    """Put the tensors of ``shards`` in dicts, like the state that they come from."""
    state: dict[str, Any] = {}
    for path, (_, tensor) in shards.items():
        inner = state
        for key in path[:-1]:
            inner = inner.setdefault(key, {})
        inner[path[-1]] = tensor
    return state


def slices_of(shards: Shards) -> dict[KeyPath, ShardSlice]:
    """Describe which part of each tensor ``shards`` holds."""
    return {path: ShardSlice(offset, tuple(tensor.shape)) for path, (offset, tensor) in shards.items()}


def check_coverage(state: dict[str, Any], saved: list[dict[KeyPath, ShardSlice]]) -> str | None:
    """Explain why ``state`` could not be restored from what the ranks have saved, or return None.

    Each element of each tensor must be there once.
    """
    whole = {path: tensor for path, tensor in _tensors(state).items() if tensor.is_meta}
    for path, tensor in whole.items():
        parts = [own[path] for own in saved if path in own]
        covered = sum(part.size for part in parts)
        twice = any(one.overlap(other).size for one, other in combinations(parts, 2))
        if covered != tensor.numel() or twice:
            return f"the ranks' shards of {_joined(path)} cover {covered} elements, not each of {tensor.numel()} once"
    strays = [path for own in saved for path in own if path not in whole]
    return f"rank 0 has no {_joined(strays[0])}, of which another rank has a shard" if strays else None


class ShardFiles:
    """The shards of all ranks in the directory of a snapshot. Only what is requested is read from the disk.

    ``partial``: the directory may have some of the files only.
    """

    def __init__(self, directory: Path, world_size: int, *, partial: bool = False) -> None:
        self._directory = directory
        paths = [directory / shard_file(rank) for rank in range(world_size)]
        self._ranks = [{} if partial and not path.exists() else self._open(path) for path in paths]

    def _open(self, path: Path) -> Shards:
        shards: Shards = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        return shards

    def _load(self, rank: int, tensor: Tensor) -> Tensor:
        """Load the data of a tensor of ``_open`` from the file of ``rank``."""
        return tensor

    def read(self, path: KeyPath, part: ShardSlice, dtype: torch.dtype) -> Tensor:
        """Copy one part of a tensor. Raises ValueError where the files do not have all of it."""
        found, missing = torch.empty(part.shape, dtype=dtype), part.size
        for rank, shards in enumerate(self._ranks):
            if path not in shards or not missing:
                continue
            offset, tensor = shards[path]
            own = ShardSlice(offset, tuple(tensor.shape))
            common = own.overlap(part)
            if common.size:
                found[common.within(part)] = self._load(rank, tensor)[common.within(own)]
                missing -= common.size
        if missing:
            raise ValueError(f"{missing} of {part.size} elements of {_joined(path)} are in none of its shards")
        return found


class RemoteShardFiles(ShardFiles):
    """Shards on a network file system, in files that ranks on other machines have written.

    Nothing is mapped into memory: a page that the server does not return would end the process by SIGBUS, where a read
    raises OSError. ``check`` is called with the name of a file before the first of its data are read, and raises where
    this machine does not see the bytes that were written.
    """

    def __init__(self, directory: Path, world_size: int, check: Callable[[str], None]) -> None:
        self._check = check
        self._checked: set[int] = set()
        super().__init__(directory, world_size)

    def _open(self, path: Path) -> Shards:
        """Open the file as tensors without data, whose storages have their offset in the file."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            shards: Shards = torch.load(path, map_location="cpu", weights_only=True)
        return shards

    def _load(self, rank: int, tensor: Tensor) -> Tensor:
        name, storage = shard_file(rank), tensor.untyped_storage()
        if rank not in self._checked:
            self._check(name)
            self._checked.add(rank)
        with (self._directory / name).open("rb") as file:
            file.seek(storage._checkpoint_offset or 0)
            data = bytearray(file.read(storage.nbytes()))
        if len(data) != storage.nbytes():
            raise OSError(f"{self._directory / name} ends within a tensor of {storage.nbytes()} bytes")
        whole = torch.frombuffer(data, dtype=tensor.dtype)
        return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def reshard(state: Any, layout: Mapping[KeyPath, "DTensor"], files: ShardFiles | None = None) -> Any:
    """Put a DTensor into ``state`` wherever ``layout`` has one, sharded like it, and whole tensors everywhere else.

    Tensors without data are read from ``files``; no rank reads more than it needs. Raises ValueError for a tensor of
    another shape than its layout.
    """

    def fill(path: KeyPath, tensor: Tensor) -> Tensor:
        target = layout.get(path)
        if _is_dtensor(tensor) or (target is None and not tensor.is_meta):
            return tensor
        whole = ShardSlice((0,) * tensor.dim(), tuple(tensor.shape))
        if target is not None and target.shape != tensor.shape:
            raise ValueError(f"{_joined(path)} has shape {whole.shape}, and here {tuple(target.shape)}")
        part = _needed_part(tensor, target)
        own = files.read(path, part, tensor.dtype) if tensor.is_meta and files else tensor[part.within(whole)]
        return own if target is None else _like(target, own)

    return map_tensors(state, fill)


def needed_parts(state: Any, layout: Mapping[KeyPath, "DTensor"]) -> dict[KeyPath, ShardSlice]:
    """Slices that ``reshard`` reads from files on this rank."""
    return {path: _needed_part(tensor, layout.get(path)) for path, tensor in _tensors(state).items() if tensor.is_meta}


def overlaps(saved: Mapping[KeyPath, ShardSlice], needed: Mapping[KeyPath, ShardSlice]) -> bool:
    """True where a file with ``saved`` has something of ``needed``."""
    return any(path in saved and saved[path].overlap(part).size for path, part in needed.items())


def _needed_part(tensor: Tensor, target: "DTensor | None") -> ShardSlice:
    """Slice of ``tensor`` that this rank needs: all of it, unless it is to be sharded like ``target``."""
    if target is None or target.shape != tensor.shape:
        return ShardSlice((0,) * tensor.dim(), tuple(tensor.shape))
    return _slice_of(target)


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


def _slice_of(tensor: "DTensor") -> ShardSlice:
    """Slice of ``tensor`` that this rank has, which may be empty."""
    if tensor.device_mesh.get_coordinate() is None:
        return ShardSlice((0,) * tensor.dim(), (0,) * tensor.dim())
    (chunk,) = tensor.__create_chunk_list__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    return ShardSlice(tuple(chunk.offsets), tuple(chunk.sizes))


def _saves(tensor: "DTensor") -> bool:
    """True where this rank saves its shard: its mesh has rank 0, and it is the first of the ranks with the same shard.

    Another mesh has another tensor, most often an equal one: with tensor parallelism, say, a layer that is not split
    has a mesh at each place of a split one.
    """
    coordinate = tensor.device_mesh.get_coordinate()
    if coordinate is None or not bool((tensor.device_mesh.mesh == 0).any()):
        return False
    return not any(
        own for own, placement in zip(coordinate, tensor.placements, strict=True) if placement.is_replicate()
    )


def _is_dtensor(tensor: Tensor) -> TypeGuard["DTensor"]:
    return hasattr(type(tensor), "__create_chunk_list__")


def _tensors(state: Any) -> dict[KeyPath, Tensor]:
    """All tensors in the dicts, lists and tuples of ``state``."""
    found: dict[KeyPath, Tensor] = {}
    map_tensors(state, lambda path, tensor: found.setdefault(path, tensor))
    return found


def map_tensors(value: Any, change: Callable[[KeyPath, Tensor], Tensor], path: KeyPath = ()) -> Any:
    """Copy ``value`` with ``change`` made to every tensor in its dicts, lists and tuples."""
    if isinstance(value, Tensor):
        return change(path, value)
    if isinstance(value, dict):
        return copy_mapping(value, {key: map_tensors(item, change, (*path, key)) for key, item in value.items()})
    if type(value) in (list, tuple):
        return type(value)([map_tensors(item, change, (*path, index)) for index, item in enumerate(value)])
    return value


def _joined(path: KeyPath) -> str:
    return "/".join(str(key) for key in path)
