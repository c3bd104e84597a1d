"""Joining the other ranks, talking to them, and leaving without a crash."""

import gc
from dataclasses import dataclass, replace
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist

from rekindle.contract.environment import RankEnv

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class World:
    """This rank among the others.

    ``control`` is a gloo group beside the one that trains: small decisions and snapshots use it, so that they work on
    every device and never mix with gradients. It is None only in a world of one that joined no group.
    """

    rank: int
    local_rank: int
    size: int
    device: torch.device
    control: dist.ProcessGroup | None
    owned: bool  # joined here, so to be left here

    def gather(self, value: T) -> list[T]:
        """Everybody's ``value`` by rank, on every rank. All ranks must call it."""
        if self.control is None:
            return [value]
        values: list[T] = [value] * self.size
        dist.all_gather_object(values, value, group=self.control)
        return values

    def broadcast(self, value: T) -> T:
        """Rank 0's ``value``, on every rank. All ranks must call it."""
        if self.control is None:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self.control)
        return values[0]

    def beside(self) -> "World":
        """The same ranks with a group of their own, so that another thread may talk there. All ranks must call it."""
        if self.control is None:
            return self
        return replace(self, control=cast("dist.ProcessGroup", dist.new_group(backend="gloo")), owned=False)

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.control is not None:
            dist.barrier(group=self.control)


def join(env: RankEnv, device: str) -> World:
    """Join the process group that torchrun prepared, or a world of one where there is no torchrun.

    ``device`` is ``cpu``, ``cuda`` (then the GPU of the local rank) or ``auto``. A group that the script has joined
    already is used, and left to the script.
    """
    owned = not dist.is_initialized()
    place = _choose_device(device, env.local_rank)
    if owned:
        backend = "nccl" if place.type == "cuda" else "gloo"
        dist.init_process_group(backend, **_rendezvous(env), device_id=place if place.type == "cuda" else None)
    return _describe(env, place, owned)


def joined_world(env: RankEnv) -> World:
    """The world that the script has joined by itself; a world of one where it has joined none.

    Raises RuntimeError under a torchrun with several ranks whose group nobody has joined yet.
    """
    device = torch.device("cpu")
    if dist.is_initialized():
        return _describe(env, device, owned=False)
    if env.world_size > 1:
        raise RuntimeError(
            f"this is rank {env.rank} of {env.world_size}, but no process group is joined: call "
            "torch.distributed.init_process_group first, or use rekindle.Run, which does"
        )
    return World(0, env.local_rank, 1, device, None, owned=False)


def leave(world: World) -> None:
    """Leave a group that was joined here, after every rank has come to its end.

    Drop every reference to the DistributedDataParallel first: a rank that exits with the group or its reducer alive
    can abort in the interpreter's last moments, and then a finished training counts as failed.
    """
    if world.owned and dist.is_initialized():
        world.barrier()
        gc.collect()
        dist.destroy_process_group()


def abandon(world: World) -> None:
    """Leave after a failure, asking nobody: closed connections tell the peers at once.

    On NCCL the group is left to the end of the process, since taking it down waits for collectives that peers may
    never join.
    """
    if world.owned and dist.is_initialized() and world.device.type == "cpu":
        dist.destroy_process_group()


def _describe(env: RankEnv, device: torch.device, owned: bool) -> World:
    control = cast("dist.ProcessGroup", dist.new_group(backend="gloo"))  # of all ranks, so this one belongs to it
    return World(dist.get_rank(), env.local_rank, dist.get_world_size(), device, control, owned)


def _rendezvous(env: RankEnv) -> dict[str, Any]:
    """torchrun's own rendezvous is in the environment; a world of one needs none, with or without torchrun."""
    if env.world_size > 1:
        return {}
    store = dist.HashStore()  # type: ignore[attr-defined]  # documented, but torch does not export it by name
    return {"store": store, "rank": 0, "world_size": 1}


def _choose_device(wish: str, local_rank: int) -> torch.device:
    if wish not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', not {wish!r}")
    if wish == "cpu" or (wish == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise RuntimeError(f"local rank {local_rank} has no GPU: {count} are visible; start at most {count} ranks here")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device
