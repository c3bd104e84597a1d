"""Slots that running jobs get or leave without another job's need: free ones, and devices that fail. Pure."""

from collections.abc import Collection, Mapping, Sequence

from rekindle.contract.job_options import LinkRule
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.jobs.quotas import owner_of
from rekindle_service.launch.placement import usable_slots
from rekindle_service.machine.slots import Machine, choose_slots
from rekindle_service.scheduler.preemption import (
    Displacement,
    is_elastic,
    is_settled,
    ranks_text,
    slots_by_rank,
    slots_text,
)
from rekindle_service.store.mutations import is_stopping
from rekindle_service.store.tables import Job


def resizes(
    holding: Sequence[Job],
    free: Collection[str],
    waiting_kinds: Collection[str],
    machine: Machine,
    now: float,
    min_run: float,
    owner_room: Mapping[str, float] | None = None,
) -> list[Displacement]:
    """Which running elastic jobs get slots that are ``free``, none of a kind for which a job waits.

    One rank at a time to the job with the fewest, of the highest priority, then the oldest. No job that got its slots
    less than ``min_run`` seconds before ``now`` (seconds since the epoch), none whose start waits, none more than its
    owner may hold: ``owner_room`` has the slots that are left by owner, who else has no limit.
    """
    growing = [job for job in holding if _may_grow(job, now, min_run) and job.spec.device_kind not in waiting_kinds]
    given: dict[str, list[str]] = {job.id: [] for job in growing}
    left, room = set(free), dict(owner_room or {})
    while growing:
        job = min(growing, key=lambda job: (_ranks(job, given[job.id]), -job.priority, job.number))
        more = _slots_of_a_rank(job, given[job.id], left, machine)
        owner, size = owner_of(job), job.spec.devices_per_rank * job.spec.gpu_share
        if more is None or room.get(owner, size) < size:
            growing.remove(job)
            continue
        left.difference_update(more)
        room[owner] = room.get(owner, float("inf")) - size
        given[job.id] += more
        if _ranks(job, given[job.id]) == job.spec.max_ranks:
            growing.remove(job)
    return [_growth(job, given[job.id]) for job in holding if given.get(job.id)]


def replacements(
    holding: Sequence[Job], free: Collection[str], unusable: Mapping[str, str], machine: Machine
) -> list[Displacement]:
    """What happens to jobs on devices that are not to be used any more: ``unusable`` has the reason by slot.

    An elastic job continues on its other slots, and on free ones in place of those that it leaves; any other goes back
    to the queue, and so does one that would have fewer ranks than it needs.
    """
    left, made = set(free) - unusable.keys(), []
    for job in holding:
        slots = job.devices if job.wanted_devices is None else job.wanted_devices
        failed = [name for name in slots if name in unusable]
        if not failed or job.intent is not JobIntent.RUN or is_stopping(job):
            continue
        wanted = _without(job, slots, unusable)
        while is_elastic(job) and len(wanted) < len(slots):
            if (more := _slots_of_a_rank(job, wanted, left, machine, held=())) is None:
                break
            left.difference_update(more)
            wanted += more
        reason = f"{failed[0]} is not used any more ({unusable[failed[0]].rstrip('.')})"
        ranks = len(wanted) // job.spec.devices_per_rank
        if not is_elastic(job) or ranks < job.spec.min_ranks:
            made.append(Displacement(job, "device", f"{reason}: the job goes back to the queue."))
        else:
            before = len(slots) // job.spec.devices_per_rank
            size = "it continues on another slot" if ranks == before else f"{ranks_text(ranks)} instead of {before}"
            made.append(Displacement(job, "device", f"{reason}: {size}.", wanted=wanted))
    return made


def _may_grow(job: Job, now: float, min_run: float) -> bool:
    runs = job.state is JobState.RUNNING and job.intent is JobIntent.RUN and job.displaced is None
    return runs and is_elastic(job) and _ranks(job) < job.spec.max_ranks and is_settled(job, now, min_run)


def _ranks(job: Job, more: Sequence[str] = ()) -> int:
    return (len(job.devices) + len(more)) // job.spec.devices_per_rank


def _slots_of_a_rank(
    job: Job, more: Sequence[str], left: Collection[str], machine: Machine, held: Sequence[str] | None = None
) -> list[str] | None:
    """Free slots for one more rank, by the rule of the job for links; None where there are none.

    ``held``: the slots that it has apart from ``more``; by default those of the row.
    """
    usable = usable_slots(job.spec, [slot for slot in machine.slots if slot.name in left])
    chosen = choose_slots(usable, job.spec.devices_per_rank, machine.links)
    if chosen is None:
        return None
    names = {slot.name for slot in chosen}.union(more, job.devices if held is None else held)
    together = [slot for slot in machine.slots if slot.name in names]
    rule = LinkRule.PREFERRED if len(names) < 2 else job.spec.links
    return None if choose_slots(together, len(together), machine.links, rule) is None else [s.name for s in chosen]


def _growth(job: Job, more: Sequence[str]) -> Displacement:
    verb = "is" if len(more) == 1 else "are"
    reason = f"{slots_text(len(more))} {verb} free: {ranks_text(_ranks(job, more))} instead of {_ranks(job)}."
    return Displacement(job, "resize", reason, wanted=[*job.devices, *more])


def _without(job: Job, slots: Sequence[str], unusable: Mapping[str, str]) -> list[str]:
    """The slots of the ranks none of whose devices is unusable."""
    return [name for group in slots_by_rank(job, slots) if not unusable.keys() & set(group) for name in group]
