"""Traces for the simulation: a lab of four people, and logs in the format of the Parallel Workloads Archive."""

import random
from collections.abc import Iterable
from dataclasses import dataclass

_FIELDS = 18  # of a line of the standard workload format


@dataclass(frozen=True, slots=True)
class TraceJob:
    """Times in seconds. ``seconds`` is how long it runs, which nobody knows before; ``limit`` never falls below it."""

    number: int
    owner: str
    name: str
    submitted: float
    seconds: float
    slots: int
    limit: float | None = None
    priority: int = 0


def lab_trace(seed: int, jobs: int, *, urgent: float = 0.03) -> list[TraceJob]:
    """Four people: one trains big models, two submit sweeps, one debugs. About as much work as 8 slots can do.

    Half of the jobs have no time limit; ``urgent`` is the part that has a higher priority.
    """
    rng = random.Random(seed)
    trace: list[TraceJob] = []
    at = 0.0
    while len(trace) < jobs:
        at += rng.expovariate(1 / 2400)
        owner = rng.choices(["ann", "bob", "cem", "dee"], [2, 4, 3, 5])[0]
        batch, sizes, mean = _HABITS[owner]
        project = rng.randrange(6)
        typical = mean * rng.uniform(0.5, 1.5)
        slots = rng.choice(sizes)
        for index in range(min(rng.randint(*batch), jobs - len(trace))):
            seconds = max(20.0, typical * rng.lognormvariate(0, 0.35))
            limit = seconds * rng.uniform(1.05, 4) if rng.random() < 0.5 else None
            name = f"{'abcdef'[project]}{slots} {index}"
            priority = 10 if rng.random() < urgent else 0
            trace.append(TraceJob(len(trace) + 1, owner, name, at, seconds, slots, limit, priority))
    return trace


_HABITS: dict[str, tuple[tuple[int, int], list[int], float]] = {  # jobs at once, slots of each, mean seconds
    "ann": ((1, 1), [4, 8, 8], 9000),
    "bob": ((3, 12), [1], 2700),
    "cem": ((2, 6), [1, 2], 4200),
    "dee": ((1, 2), [1, 1, 2], 500),
}


def read_swf(lines: Iterable[str], slots: int) -> list[TraceJob]:
    """A log of the Parallel Workloads Archive: its jobs that ran, none with more than ``slots`` processors.

    Fields, from 1: 2 submitted, 4 run time, 5 processors, 8 requested processors, 9 requested time, 12 user.
    """
    trace: list[TraceJob] = []
    for line in lines:
        fields = line.split()
        if not fields or fields[0].startswith(";"):
            continue
        if len(fields) != _FIELDS:
            raise ValueError(f"a line of the log has {len(fields)} fields, not {_FIELDS}: {line[:80]!r}")
        submitted, seconds, used, asked, requested, user = (float(fields[index]) for index in (1, 3, 4, 7, 8, 11))
        size = int(used if used > 0 else asked)
        if seconds <= 0 or not 0 < size <= slots:
            continue
        limit = max(requested, seconds) if requested > 0 else None
        trace.append(TraceJob(len(trace) + 1, f"user{int(user)}", "log", submitted, seconds, size, limit))
    return sorted(trace, key=lambda job: (job.submitted, job.number))
