"""Which faults to inject, where and when: decided, at random if requested, before the first one. Pure."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from rekindle.contract.chaos import RANK_FAULTS, Fault
from rekindle_service.suggestions import closest

SERVER = "server"
"""A fault of the command line itself: kill -9 of this machine's server, which is then started again."""

MEAN_INTERVAL = 3.0  # seconds before a fault at a random time, unless --every sets it

KNOWN_FAULTS = (*(fault.value for fault in Fault), SERVER)


@dataclass(frozen=True, slots=True)
class ChaosOptions:
    """The options of `rekindle chaos`."""

    faults: Sequence[str] = ()  # none: kill, or with ``random`` any but ``server``
    rank: int | None = None
    count: int | None = None  # None: each fault once
    every: float | None = None  # seconds that the job runs before each fault; with ``random`` on average
    random: bool = False

    @property
    def total(self) -> int:
        return self.count or len(self.faults) or 1


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """``rank`` is None where the fault targets no rank, or the server may choose one."""

    fault: str
    rank: int | None
    delay: float  # seconds that the job is to run before it


def schedule(options: ChaosOptions, world_size: int, generator: random.Random) -> list[PlannedFault]:
    """The faults in order. Raises typer.BadParameter for a rank that a job of ``world_size`` ranks does not have."""
    if options.rank is not None and options.rank >= world_size:
        raise typer.BadParameter(f"--rank {options.rank}: the job has {world_size} ranks, 0 to {world_size - 1}")
    return [
        PlannedFault(fault, _rank(options, fault, world_size, generator), _delay(options, generator))
        for fault in _faults(options, generator)
    ]


def _faults(options: ChaosOptions, generator: random.Random) -> list[str]:
    if options.random:
        pool = options.faults or [fault.value for fault in Fault]
        return [generator.choice(pool) for _ in range(options.total)]
    selected = options.faults or [Fault.KILL.value]
    return [selected[index % len(selected)] for index in range(options.total)]


def _rank(options: ChaosOptions, fault: str, world_size: int, generator: random.Random) -> int | None:
    if fault not in RANK_FAULTS and fault != Fault.CORRUPT_SNAPSHOT:
        return None
    return generator.randrange(world_size) if options.rank is None and options.random else options.rank


def _delay(options: ChaosOptions, generator: random.Random) -> float:
    if not options.random:
        return options.every or 0.0
    return generator.uniform(0, 2 * (MEAN_INTERVAL if options.every is None else options.every))


def parse_fault(name: str) -> str:
    """``name`` if it is a fault. Raises typer.BadParameter with the known ones."""
    if name not in KNOWN_FAULTS:
        near = "".join(f"did you mean {each!r}? " for each in closest(name, KNOWN_FAULTS)[:1])
        raise typer.BadParameter(f"unknown fault {name!r}; {near}known: {', '.join(KNOWN_FAULTS)}")
    return name
