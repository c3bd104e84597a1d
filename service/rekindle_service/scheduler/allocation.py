"""Who gets which slots now. Pure: rows in, a plan out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rekindle.contract.states import TERMINAL, JobIntent, JobState
from rekindle_service.machine.devices import TOPOLOGY_LEVELS, Link, Machine, Slot
from rekindle_service.store.tables import Job

SHOWN_POSITIONS = 200
"""Queue positions that are shown; with more of them, every start would rewrite all rows."""


@dataclass(slots=True)
class Allocation:
    """What to start, in this order, and what everybody else waits for."""

    starts: list[tuple[Job, list[str]]] = field(default_factory=list)  # slot names, one per rank
    # job id → (position, waiting for)
    queue_positions: dict[str, tuple[int | None, str | None]] = field(default_factory=dict)


def allocate(
    queue: Iterable[Job],
    machine: Machine,
    taken: Iterable[str],
    job_state: Callable[[str], JobState | None],
    lack_of_space: str | None = None,
) -> Allocation:
    """Give free slots to the queue, strictly in its order within each kind of device.

    A job that does not fit yet blocks every later job for its kind of device, so small jobs never starve a big one.
    Skipped: held jobs, jobs that wait for another job (``job_state`` gives its state, None for an unknown one), and
    jobs that this machine can never run. An elastic job gets as many of its ranks as there are free slots. ``queue``
    is in the order of the queue and is read only as far as anything can still be decided. With ``lack_of_space`` on the
    disk nothing starts.
    """
    plan = Allocation()
    free = _free_slots(machine, set(taken))
    blocked: set[str] = set()
    position = 0
    for job in queue:
        if len(blocked) == len(free) and position >= SHOWN_POSITIONS:
            break
        obstacle = _blocking_reason(job, machine, job_state)
        if obstacle is not None:
            plan.queue_positions[job.id] = (None, obstacle)
            continue
        slots = free[job.spec.device]
        if lack_of_space is None and job.spec.device not in blocked and len(slots) >= job.spec.min_ranks:
            chosen = choose_slots(slots, min(len(slots), job.spec.max_ranks), machine.links)
            free[job.spec.device] = [slot for slot in slots if slot not in chosen]
            plan.starts.append((job, [slot.name for slot in chosen]))
            continue
        blocked.add(job.spec.device)
        position += 1
        if position <= SHOWN_POSITIONS:
            unit = "slot" if job.spec.min_ranks == 1 else "slots"
            requested = f"{job.spec.min_ranks} {job.spec.device} {unit}"
            waiting_for = f"disk space: {lack_of_space}" if lack_of_space else f"{requested}, {len(slots)} free"
            plan.queue_positions[job.id] = (position, waiting_for)
    return plan


def _free_slots(machine: Machine, taken: set[str]) -> dict[str, list[Slot]]:
    """By kind of device; a kind that the machine does not have is not in it."""
    free: dict[str, list[Slot]] = {slot.device: [] for slot in machine.slots}
    for slot in machine.slots:
        if slot.name not in taken:
            free[slot.device].append(slot)
    return free


def _blocking_reason(job: Job, machine: Machine, job_state: Callable[[str], JobState | None]) -> str | None:
    """Why the job could not start even on an idle machine, or None."""
    if job.intent is not JobIntent.RUN:
        return "held: it starts when it is resumed"
    for other in job.spec.after:
        state = job_state(other)
        if state is None:
            return f"job {other}, which does not exist: cancel this job and submit it again without it"
        if state in TERMINAL - {JobState.SUCCEEDED}:
            return f"job {other}, which has {state}: resume that one, or cancel this one"
        if state is not JobState.SUCCEEDED:
            return f"job {other} to succeed"
    if job.run_after is not None and job_state(job.run_after) not in {None, *TERMINAL}:
        return f"job {job.run_after} to end: their experiment runs one job at a time"
    total = machine.count(job.spec.device)
    if job.spec.min_ranks > total:
        return f"{job.spec.min_ranks} {job.spec.device} slots, but this machine has {total}"
    return None


def choose_slots(free: Sequence[Slot], count: int, links: Iterable[Link]) -> list[Slot]:
    """``count`` of the ``free`` slots that reach each other best, in the order of their indices.

    Greedy from every possible first slot: exact for the regular topologies of real machines, and never slow.
    """
    cost = {frozenset((link.first, link.second)): TOPOLOGY_LEVELS.index(link.kind) for link in links}
    if not cost or count == len(free):
        return sorted(free, key=lambda slot: slot.index)[:count]

    def distance(slot: Slot, others: Iterable[Slot]) -> int:
        return sum(cost.get(frozenset((slot.name, other.name)), len(TOPOLOGY_LEVELS)) for other in others)

    def grow(first: Slot) -> list[Slot]:
        group = [first]
        while len(group) < count:
            rest = [slot for slot in free if slot not in group]
            group.append(min(rest, key=lambda slot: (distance(slot, group), slot.index)))
        return group

    groups = [grow(first) for first in sorted(free, key=lambda slot: slot.index)]
    best = min(groups, key=lambda group: sum(distance(slot, group) for slot in group))
    return sorted(best, key=lambda slot: slot.index)
