"""Joining the other ranks, communicating with them, and leaving without a crash."""

import gc
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from rekindle.contract.environment import RankEnv

T = TypeVar("T")

_DEBUGGING = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class World:
    """This rank among the others.

    ``control`` is a gloo group of its own: flags and snapshots use it, so that they work on every device and never mix
    with gradients. It is None only in a world of one that joined no group.
    """

    rank: int
    local_rank: int
    size: int
    device: torch.device
    control: dist.ProcessGroup | None
    owned: bool  # joined here, so it is left here
    nodes: tuple[int, ...] = ()  # of each rank the number of its machine; empty where the job never has but one

    @property
    def spans_machines(self) -> bool:
        """True where ranks of this job run on other machines, or did so in the attempt before."""
        return bool(self.nodes)

    @property
    def node(self) -> int:
        """The number of this rank's machine."""
        return self.nodes[self.rank] if self.nodes else 0

    @property
    def node_leaders(self) -> dict[int, int]:
        """The first rank of each machine, by the machine's number, ascending."""
        nodes = self.nodes or (0,)
        return {node: nodes.index(node) for node in sorted(set(nodes))}

    @property
    def leads_node(self) -> bool:
        """True for the first rank of each machine."""
        return self.node_leaders[self.node] == self.rank

    def gather(self, value: T) -> list[T]:
        """Collect the ``value`` of each rank, by rank, on every rank. All ranks must call it."""
        if self.control is None:
            return [value]
        values: list[T] = [value] * self.size
        dist.all_gather_object(values, value, group=self.control)
        return values

    def broadcast(self, value: T) -> T:
        """Send rank 0's ``value`` to every rank. All ranks must call it."""
        if self.control is None:
            return value
        values = [value]
        dist.broadcast_object_list(values, src=0, group=self.control)
        return values[0]

    def with_new_group(self) -> "World":
        """Make the same world with another control group, for use by another thread. All ranks must call it."""
        if self.control is None:
            return self
        return replace(self, control=cast("dist.ProcessGroup", dist.new_group(backend="gloo")), owned=False)

    def barrier(self) -> None:
        """Wait for all ranks."""
        if self.control is not None:
            dist.barrier(group=self.control)


def join(env: RankEnv, device: str) -> World:
    """Join the process group that torchrun prepared, or a world of one where there is no torchrun.

    ``device`` is ``cpu``, ``cuda`` (the first GPU of the local rank) or ``auto``. A group that the script has joined
    already is used, and remains the script's to leave.
    """
    owned = not dist.is_initialized()
    own_device = _select_device(device, env.local_rank * env.devices_per_rank)
    if owned:
        gpu = own_device if own_device.type == "cuda" else None
        dist.init_process_group("gloo" if gpu is None else "nccl", **_rendezvous(env), device_id=gpu)
    return _describe(env, own_device, owned)


def joined_world(env: RankEnv) -> World:
    """The world that the script has joined by itself; a world of one where it has joined none.

    Raises RuntimeError under a torchrun with several ranks where the script has joined none yet.
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
    """Leave a group that was joined here, after every rank has finished.

    Drop every reference to the DistributedDataParallel first: a rank that exits with the group or its reducer alive
    can abort while the interpreter shuts down, and then a finished training counts as failed.
    """
    if world.owned and dist.is_initialized():
        world.barrier()
        gc.collect()
        dist.destroy_process_group()


def abort(world: World) -> None:
    """Leave after a failure, without the other ranks: they notice the closed connections at once.

    On NCCL the group stays until the process ends, since destroying it waits for collectives that peers may never join.
    """
    if world.owned and dist.is_initialized() and world.device.type == "cpu":
        dist.destroy_process_group()


def wait_for_days() -> None:
    """Let the ranks wait for each other for as long as a person may use a debugger, in every group that exists."""
    for group in distributed_c10d._world.pg_map:
        distributed_c10d._set_pg_timeout(_DEBUGGING, group)


def _describe(env: RankEnv, device: torch.device, owned: bool) -> World:
    control = cast("dist.ProcessGroup", dist.new_group(backend="gloo"))  # of all ranks, so this one belongs to it
    world = World(dist.get_rank(), env.local_rank, dist.get_world_size(), device, control, owned)
    if env.node is None and env.local_world_size == env.world_size:
        return world
    return replace(world, nodes=tuple(world.gather(env.group_rank if env.node is None else env.node)))


def _rendezvous(env: RankEnv) -> dict[str, Any]:
    """Arguments for a world of one, which needs no rendezvous; torchrun's own is in the environment."""
    if env.world_size > 1:
        return {}
    store = dist.HashStore()  # type: ignore[attr-defined]  # documented, but torch does not export it by name
    return {"store": store, "rank": 0, "world_size": 1}


def _select_device(requested: str, index: int) -> torch.device:
    if requested not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device must be 'auto', 'cpu' or 'cuda', not {requested!r}")
    if requested == "cpu" or (requested == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if index >= count:
        raise RuntimeError(f"this rank would use GPU {index}, and {count} are visible: start fewer ranks here")
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device
