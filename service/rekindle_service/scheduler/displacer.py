"""Carries out what ``preemption`` and ``elastic`` decide: slots change hands between running and waiting jobs."""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from rekindle_service.config.settings import Preemption
from rekindle_service.jobs.quotas import Quotas, slots_by_owner
from rekindle_service.launch.registry import takes_slots
from rekindle_service.machine.health import DeviceHealth
from rekindle_service.machine.slots import Machine
from rekindle_service.scheduler.elastic import replacements, resizes
from rekindle_service.scheduler.preemption import Displacement, Room, displace_for, is_elastic
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

_MAX_HEADS = 64  # waiting jobs for which slots are sought at once
_CLOCK_STEP = 0.001  # seconds after a time at which it has certainly passed
_FREE_SECONDS = 5.0  # that a slot has been free before a running job grows into it, if ``min_run`` is no less


@dataclass(frozen=True, slots=True)
class DisplacementRules:
    """Of the settings."""

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
    room = Room(usable, set(free), [job for job in holding if job.id not in moved])
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
