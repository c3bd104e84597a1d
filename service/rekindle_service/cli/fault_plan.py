"""Which faults strike, where and when: decided, by chance if wanted, before the first one does."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from rekindle.contract.chaos import RANK_FAULTS, Fault

SERVER = "server"
"""A fault of the command line's own: kill -9 of this machine's server, which is then started again."""

MEAN_PAUSE = 3.0  # seconds before a fault at a random moment, where nothing else is wanted

KNOWN = (*(fault.value for fault in Fault), SERVER)


@dataclass(frozen=True, slots=True)
class Wish:
    """The options of `rekindle chaos`."""

    faults: Sequence[str] = ()  # none: kill, or with ``random`` any but the server's end
    rank: int | None = None
    count: int | None = None  # None: each fault once
    every: float | None = None  # seconds that the job runs before each fault; with ``random`` on average
    random: bool = False

    @property
    def total(self) -> int:
        """How many faults there are to be."""
        return self.count or len(self.faults) or 1


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault to come. ``rank`` is None where the fault strikes none, or the server may pick one."""

    fault: str
    rank: int | None
    pause: float  # seconds that the job is to run before


def strikes(wish: Wish, world_size: int, draw: random.Random) -> list[Strike]:
    """The plan. Raises typer.BadParameter for a rank that a job of ``world_size`` ranks does not have."""
    if wish.rank is not None and wish.rank >= world_size:
        raise typer.BadParameter(f"--rank {wish.rank}: the job has {world_size} ranks, 0 to {world_size - 1}")
    return [Strike(fault, _rank(wish, fault, world_size, draw), _pause(wish, draw)) for fault in _faults(wish, draw)]


def _faults(wish: Wish, draw: random.Random) -> list[str]:
    if wish.random:
        pool = wish.faults or [fault.value for fault in Fault]
        return [draw.choice(pool) for _ in range(wish.total)]
    chosen = wish.faults or [Fault.KILL.value]
    return [chosen[index % len(chosen)] for index in range(wish.total)]


def _rank(wish: Wish, fault: str, world_size: int, draw: random.Random) -> int | None:
    if fault not in RANK_FAULTS and fault != Fault.CORRUPT_SNAPSHOT:
        return None
    return draw.randrange(world_size) if wish.rank is None and wish.random else wish.rank


def _pause(wish: Wish, draw: random.Random) -> float:
    if not wish.random:
        return wish.every or 0.0
    return draw.uniform(0, 2 * (MEAN_PAUSE if wish.every is None else wish.every))


def known_fault(name: str) -> str:
    """``name`` if it is a fault. Raises typer.BadParameter with those there are."""
    if name not in KNOWN:
        raise typer.BadParameter(f"there is no fault {name!r}; known: {', '.join(KNOWN)}")
    return name
