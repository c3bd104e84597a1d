"""Whose slots a waiting job gets. Pure: rows in, what is to happen to which job out.

A job of lower priority is stopped and goes back to the queue, by default only one of the same owner. An elastic one
gives up ranks instead, also for a job of its own priority or of another owner, since it has those above its least
number only while nobody needs them; but for that it must have saved something before.
"""

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from rekindle.contract.states import JobIntent, JobState
from rekindle_service.config.settings import Preemption
from rekindle_service.job_wording import quoted_label
from rekindle_service.jobs.quotas import owner_of
from rekindle_service.launch.placement import usable_slots
from rekindle_service.launch.registry import takes_slots
from rekindle_service.machine.slots import Machine, Slot, choose_slots
from rekindle_service.store.mutations import is_stopping
from rekindle_service.store.tables import Job

_MAX_SETS = 500  # of jobs of one number that are compared
_SIMILAR = 60.0  # seconds of lost work that make no difference


@dataclass(frozen=True, slots=True)
class Displacement:
    """What is to happen to a job that holds slots; ``reason`` is one sentence."""

    job: Job
    kind: Literal["preempt", "resize", "device"]
    reason: str
    by: str | None = None  # id of the job that gets its slots
    wanted: list[str] | None = None  # slots of its next attempt; None: it goes back to the queue


@dataclass(slots=True)
class FreeSlots:
    """The slots that a waiting job can have soon."""

    machine: Machine
    free: set[str]
    holding: Sequence[Job]
    _holders: dict[str, int] = field(default_factory=dict)  # number of jobs by slot: several may share a GPU

    def __post_init__(self) -> None:
        for name in itertools.chain.from_iterable(job.devices for job in self.holding):
            self._holders[name] = self._holders.get(name, 0) + 1
        for job in self.holding:
            if job.intent is not JobIntent.RUN or is_stopping(job):
                self.add(job.devices)
            elif job.wanted_devices is not None:
                self.add(set(job.devices) - set(job.wanted_devices))

    def add(self, names: Iterable[str]) -> None:
        """One of the jobs that hold these slots leaves them."""
        for name in names:
            self._holders[name] = self._holders.get(name, 1) - 1
            if self._holders[name] == 0:
                self.free.add(name)

    def freed_by(self, left: Iterable[str]) -> set[str]:
        """The slots of ``left`` that would be free; it has one entry for each job that leaves a slot."""
        counts: dict[str, int] = {}
        for name in left:
            counts[name] = counts.get(name, 0) + 1
        return {name for name, count in counts.items() if count >= self._holders.get(name, 0)}

    def reserve(self, head: Job, found: Sequence["Displacement"]) -> None:
        """Keep for ``head`` what it gets once these displacements are carried out."""
        for each in found:
            self.add(set(each.job.devices).difference(each.wanted or ()))
        gone = {each.job.id for each in found}
        self.holding = [job for job in self.holding if job.id not in gone]
        self.free -= {slot.name for slot in self.choose(head) or ()}

    def choose(self, head: Job, further: Iterable[str] = ()) -> list[Slot] | None:
        """Slots for the least number of ranks of ``head``, if there are enough with the ``further`` ones."""
        names = self.free.union(further)
        slots = usable_slots(head.spec, [slot for slot in self.machine.slots if slot.name in names])
        return choose_slots(slots, head.spec.min_devices, self.machine.links, head.spec.links)


def may_stop(head: Job, job: Job, preemption: Preemption) -> bool:
    """Whether ``head`` may stop ``job``, once that has had its slots long enough."""
    permitted = preemption == "all" or (preemption == "own" and owner_of(head) == owner_of(job))
    return permitted and job.priority < head.priority


def displace_for(
    head: Job, room: FreeSlots, now: float, min_run: float, preemption: Preemption = "own"
) -> list[Displacement] | None:
    """What frees enough slots for ``head``: nothing where enough are free or about to be, None where nothing can.

    The fewest jobs are stopped; among as few, those that lose the least work since they last saved, in minutes, then
    those of the lowest priority, then the youngest. ``now`` in seconds since the epoch; a job that has its slots for
    less than ``min_run`` seconds keeps them. Where ``preemption`` forbids to stop a job, an elastic one still gives up
    ranks.
    """
    if room.choose(head) is not None:
        return []
    able = [job for job in room.holding if job.spec.device_kind == head.spec.device_kind and _may_change(job)]
    elastic = [job for job in able if _may_shrink(job, head, now, min_run, preemption)]
    lower = [job for job in able if may_stop(head, job, preemption) and is_settled(job, now, min_run)]
    lower.sort(key=lambda job: _cost([job], now))

    def frees_enough(stopped: Sequence[Job]) -> bool:
        left = [name for job in stopped for name in job.devices]
        left += [name for job in elastic if job not in stopped for name in _surplus(job, head)]
        return room.choose(head, room.freed_by(left)) is not None

    if not frees_enough(lower):
        return None
    for count in range(len(lower)):
        sets = itertools.islice(itertools.combinations(lower, count), _MAX_SETS)
        if found := [stopped for stopped in sets if frees_enough(stopped)]:
            lower = list(min(found, key=lambda stopped: _cost(stopped, now)))
            break
    return _displacements(head, lower, [job for job in elastic if job not in lower], room)


def is_settled(job: Job, now: float, min_run: float) -> bool:
    """Whether it has had its slots long enough for a change."""
    return job.devices_since is None or now - job.devices_since >= min_run


def is_elastic(job: Job) -> bool:
    """Whether the number of its ranks may change while it runs."""
    spec = job.spec
    return job.can_resize and spec.resizable and spec.min_ranks < spec.max_ranks and takes_slots(spec)


def unsaved_seconds(job: Job, now: float) -> float:
    """For how long a running job has saved nothing: the work that a stop may lose; infinite where it never has."""
    if job.state is not JobState.RUNNING:
        return 0.0
    saved = [job.snapshot_at] if job.snapshot_at is not None else []
    saved += [float(each["written_at"]) for each in job.checkpoints if "written_at" in each]
    if not saved and job.snapshot_step is None:
        return math.inf
    return max(now - max([*saved, job.devices_since or 0.0]), 0.0)


def slots_by_rank(job: Job, names: Sequence[str]) -> list[list[str]]:
    """The slots ``names``, in groups for one rank each."""
    each = job.spec.devices_per_rank
    return [list(names[index : index + each]) for index in range(0, len(names), each)]


def ranks_text(count: int) -> str:
    return f"{count} rank" if count == 1 else f"{count} ranks"


def slots_text(count: int) -> str:
    return f"{count} slot" if count == 1 else f"{count} slots"


def _cost(jobs: Iterable[Job], now: float) -> tuple[float, list[int], list[int]]:
    """What it costs to stop these jobs, as ``displace_for`` compares it."""
    jobs = list(jobs)
    lost = sum(unsaved_seconds(job, now) for job in jobs) // _SIMILAR
    return lost, sorted((job.priority for job in jobs), reverse=True), sorted(-job.number for job in jobs)


def _may_change(job: Job) -> bool:
    """False where it leaves its slots anyway."""
    return job.intent is JobIntent.RUN and not is_stopping(job) and bool(job.devices)


def _is_growing(job: Job) -> bool:
    """It has been given more slots and does not use them yet."""
    return job.wanted_devices is not None and set(job.wanted_devices) == set(job.devices)


def _may_shrink(job: Job, head: Job, now: float, min_run: float, preemption: Preemption) -> bool:
    if not is_elastic(job) or job.state is JobState.STARTING:
        return False
    if _is_growing(job):
        return True  # nothing is lost
    if job.wanted_devices is not None or not is_settled(job, now, min_run):
        return False
    return may_stop(head, job, preemption) or (job.priority <= head.priority and unsaved_seconds(job, now) < math.inf)


def _used(job: Job) -> list[str]:
    """The slots that its ranks run on: those that it is to get are not used yet."""
    return list((job.displaced or {}).get("before") or job.devices) if _is_growing(job) else job.devices


def _groups(job: Job, head: Job, names: Sequence[str]) -> list[list[str]]:
    """The slots of each rank, in the order in which ``job`` gives them up for ``head``: first those of most use."""
    own, groups = set(head.spec.device_names), slots_by_rank(job, names)
    groups.reverse()
    return sorted(groups, key=lambda group: -len(own.intersection(group)))


def _surplus(job: Job, head: Job) -> list[str]:
    """All that it can give up: what it does not use yet, and the slots of the ranks above its least number."""
    offered, used = [name for name in job.devices if name not in _used(job)], _groups(job, head, _used(job))
    if _is_growing(job) and job.priority > head.priority:
        return offered
    return offered + [name for group in used[: len(used) - job.spec.min_ranks] for name in group]


def _displacements(head: Job, stopped: Sequence[Job], elastic: Sequence[Job], room: FreeSlots) -> list[Displacement]:
    """``stopped`` go back to the queue; of ``elastic``, the lowest and youngest give up ranks, no more than needed."""
    left = [name for job in stopped for name in job.devices]
    made = [
        Displacement(job, "preempt", f"{_named(head)}, of priority {head.priority}, gets its slots.", head.id)
        for job in stopped
    ]
    for job in sorted(elastic, key=lambda job: (not _is_growing(job), job.priority, -job.number)):
        given = _give_up(job, head, room, left)
        if given:
            left += given
            made.append(_shrink(job, head, given))
    return made


def _named(head: Job) -> str:
    """``Job "urgent" (#8) of ann``."""
    label = quoted_label(head.name, head.number)
    return f"{label[0].upper()}{label[1:]} of {owner_of(head)}"


def _give_up(job: Job, head: Job, room: FreeSlots, left: Sequence[str]) -> list[str]:
    """The slots of as many ranks as ``head`` still lacks."""
    surplus, each, given = _surplus(job, head), job.spec.devices_per_rank, []
    if _is_growing(job) and room.choose(head, room.freed_by(left)) is None:
        given = [name for name in surplus if name not in _used(job)]  # they are only offered as a whole
    while len(given) < len(surplus) and room.choose(head, room.freed_by([*left, *given])) is None:
        given = surplus[: len(given) + each]
    return given


def _shrink(job: Job, head: Job, given: Sequence[str]) -> Displacement:
    wanted = [name for name in _used(job) if name not in given]
    each = job.spec.devices_per_rank
    ranks, before = len(wanted) // each, len(_used(job)) // each
    size = f"it keeps its {ranks_text(ranks)}" if ranks == before else f"{ranks_text(ranks)} instead of {before}"
    return Displacement(job, "resize", f"{_named(head)} gets {slots_text(len(given))}: {size}.", head.id, wanted)
