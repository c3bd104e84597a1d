"""Slots that change hands while jobs run: for a waiting job, for a device that fails, or because they are free."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from rekindle.contract.job_options import LinkRule
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.config.settings import Preemption
from rekindle_service.jobs.quotas import Quotas, owner_of, slots_by_owner
from rekindle_service.launch.placement import usable_slots
from rekindle_service.launch.registry import takes_slots
from rekindle_service.machine.health import DeviceHealth
from rekindle_service.machine.slots import Machine, choose_slots
from rekindle_service.scheduler.preemption import (
    Displacement,
    FreeSlots,
    displace_for,
    is_elastic,
    is_settled,
    ranks_text,
    slots_by_rank,
    slots_text,
)
from rekindle_service.store import Store
from rekindle_service.store.mutations import is_stopping
from rekindle_service.store.tables import Job

_MAX_HEADS = 64  # waiting jobs for which slots are sought at once
_CLOCK_STEP = 0.001  # seconds after a time at which it has certainly passed
_FREE_SECONDS = 5.0  # that a slot has been free before a running job grows into it, if ``min_run`` is no less


def resizes(
    holding: Sequence[Job],
    free: Collection[str],
    waiting_kinds: Collection[str],
    machine: Machine,
    now: float,
    min_run: float,
    owner_room: Mapping[str, float] | None = None,
) -> list[Displacement]:
    """Give ``free`` slots to running elastic jobs, except slots of a kind for which a job waits.

    Add rank by rank, each to the smallest job; among equals to the one of the highest priority, then to the oldest.
    Skip jobs that got their slots less than ``min_run`` seconds before ``now`` (seconds since the epoch), that are
    about to start, or whose owner may hold no more: ``owner_room`` has the slots left by owner; others have no limit.
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


@dataclass(frozen=True, slots=True)
class DisplacementRules:
    """The settings about jobs that give up slots."""

    preemption: Preemption = "own"
    min_run: float = 60.0  # seconds
    quotas: Quotas = field(default_factory=Quotas)

    def owner_room(self, holding: Sequence[Job]) -> dict[str, float]:
        """Slots that each owner of one of these jobs may still get; without those who have no limit."""
        limits = {owner: (self.quotas.of(owner).slots, held) for owner, held in slots_by_owner(holding).items()}
        return {owner: limit - held for owner, (limit, held) in limits.items() if limit is not None}


NONE_FAILED: Mapping[str, str] = {}
DEFAULT_RULES = DisplacementRules()


def displacements(
    holding: Sequence[Job],
    waiting: Sequence[Job],
    machine: Machine,
    now: float,
    rules: DisplacementRules,
    *,
    failed: Mapping[str, str] = NONE_FAILED,
    unusable: Collection[str] = (),
    free_since: Mapping[str, float] | None = None,
) -> list[Displacement]:
    """All that is to change now. Pure; ``waiting`` are jobs that lack nothing but slots, in the order of the queue.

    First jobs leave ``failed`` devices (reason by slot; they are among the ``unusable`` slots), then waiting jobs get
    slots, then running ones the rest, as far as ``free_since`` (seconds since the epoch) is long enough ago; by default
    all that is free.
    """
    held = {name for job in holding for name in job.devices}
    free = {slot.name for slot in machine.slots} - held - set(unusable)
    made = replacements(holding, free, failed, machine)
    moved = {each.job.id for each in made}
    free -= {name for each in made for name in each.wanted or []}
    blocked: set[str] = set()
    usable = Machine(tuple(slot for slot in machine.slots if slot.name not in unusable), machine.links)
    room = FreeSlots(usable, set(free), [job for job in holding if job.id not in moved])
    for head in islice(waiting, _MAX_HEADS):
        kind = head.spec.device_kind
        if kind in blocked:
            continue
        found = displace_for(head, room, now, rules.min_run, rules.preemption)
        if found is None:
            blocked.add(kind)
            continue
        made += found
        room.reserve(head, found)
        moved.update(each.job.id for each in found)
    long_free = {name for name in free if free_since is None or now - free_since.get(name, now) >= _settling(rules)}
    kinds = {head.spec.device_kind for head in waiting}
    rest = [job for job in holding if job.id not in moved]
    return made + resizes(rest, long_free, kinds, usable, now, rules.min_run, rules.owner_room(holding))


def _settling(rules: DisplacementRules) -> float:
    return min(_FREE_SECONDS, rules.min_run)


class Displacer:
    """One thread at a time may call it, but for ``would_displace``."""

    def __init__(self, store: Store, machine: Machine, rules: DisplacementRules, health: DeviceHealth) -> None:
        self._store, self._machine, self._rules, self._health = store, machine, rules, health
        self._free_since: dict[str, float] = {}  # seconds since the epoch, by slot
        self._health_revision = 0
        self._due_at = float("inf")  # seconds since the epoch: when time alone may allow another change

    def is_due(self) -> bool:
        """Whether ``act`` may find something although the queue has not changed."""
        return time.time() >= self._due_at or self._health.revision != self._health_revision

    def act(self, waiting: list[Job]) -> None:
        """Write what is to change into the rows; the keepers carry it out. ``waiting``: see ``displacements``."""
        now, self._health_revision = time.time(), self._health.revision
        holding = [job for job in self._store.holding() if takes_slots(job.spec)]
        held = {name for job in holding for name in job.devices}
        free = [slot.name for slot in self._machine.slots if slot.name not in held]
        self._free_since = {name: min(self._free_since.get(name, now), now) for name in free}
        plan = displacements(
            holding,
            waiting,
            self._machine,
            now,
            self._rules,
            failed=self._health.failed(),
            unusable=self._health.unusable(),
            free_since=self._free_since,
        )
        for each in plan:
            self._store.displace(each.job, each.kind, each.reason, by=each.by, wanted=each.wanted)
        self._due_at = self._next_time(holding, bool(waiting), now)

    def would_displace(
        self, job: Job, holding: Sequence[Job], waiting: Sequence[Job], taken: Collection[str]
    ) -> tuple[list[Displacement], float]:
        """What is to change for ``job``, one of ``waiting``, once running jobs have had their slots long enough.

        With the seconds until then. ``taken``: slots that other jobs are about to get. Any thread may call it.
        """
        now = time.time()
        plan = displacements(
            [each for each in holding if takes_slots(each.spec)],
            waiting,
            self._machine,
            now,
            replace(self._rules, min_run=0.0),
            failed=self._health.failed(),
            unusable={*self._health.unusable(), *taken},
        )
        made = [each for each in plan if each.by == job.id]
        ready = [(each.job.devices_since or 0.0) + self._rules.min_run - now for each in made]
        return made, max([0.0, *ready])

    def _next_time(self, holding: list[Job], has_waiting: bool, now: float) -> float:
        """When the next job has had its slots long enough, or the next slot was free long enough; else never."""
        if not has_waiting and not any(map(is_elastic, holding)):
            return float("inf")
        times = [(job.devices_since or 0.0) + self._rules.min_run for job in holding]
        times += [since + _settling(self._rules) for since in self._free_since.values()]
        return min((at for at in times if at > now), default=float("inf")) + _CLOCK_STEP
