"""Whose a job is, what owners have used, what they may hold and queue, and the highest priority they may give."""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rekindle.contract.job import JobSpec
from rekindle_service.config.settings import Quota
from rekindle_service.launch.registry import takes_slots
from rekindle_service.store import QueueRoom
from rekindle_service.store.tables import LOCAL, Job, SlotUsage
from rekindle_service.submission import FieldError

_OTHERS = "*"
_MAX_QUEUED = 100_000
_NO_LIMIT = Quota(slots=None, queued=None)


def owner_of(job: Job) -> str:
    return job.owner or LOCAL


def slots_wanted(spec: JobSpec) -> float:
    """The least that it can start with; parts of a GPU count as such."""
    return spec.min_devices * spec.gpu_share if takes_slots(spec) else 0.0


def slots_of(job: Job) -> float:
    """Slots that a job holds now; parts of a GPU count as such."""
    return len(job.devices) * job.spec.gpu_share


def slots_by_owner(holding: Iterable[Job]) -> dict[str, float]:
    """Slots held now."""
    held: dict[str, float] = {}
    for job in holding:
        held[owner_of(job)] = held.get(owner_of(job), 0.0) + slots_of(job)
    return held


def decayed(used: SlotUsage, now: float, half_life: float) -> float:
    """What is left of slot-seconds ``now``; a clock that was set back does not make them grow."""
    return used.slot_seconds * math.exp2(-max(0.0, now - used.at) / half_life)


@dataclass(frozen=True, slots=True)
class Quotas:
    """The settings ``quotas`` and ``max_queued``."""

    by_owner: Mapping[str, Quota] = field(default_factory=dict)
    max_queued: int = _MAX_QUEUED

    def of(self, owner: str) -> Quota:
        """The limits of one owner: their own, or else those of all others."""
        return self.by_owner.get(owner) or self.by_owner.get(_OTHERS) or _NO_LIMIT

    def room(self, owner: str | None) -> QueueRoom:
        """What the queue must not exceed when jobs of ``owner`` are added."""
        return QueueRoom(owner, self.max_queued, self.of(owner or LOCAL).queued)


def quota_errors(spec: JobSpec, owner: str | None, quotas: Quotas) -> Iterator[FieldError]:
    """A job that its owner's quota would never let start."""
    limit = quotas.of(owner or LOCAL).slots
    if limit is not None and slots_wanted(spec) > limit:
        rule = f"exceeds the quota of {owner or LOCAL}, who may hold {limit} slots at once"
        yield FieldError("ranks", rule, spec.min_ranks, "give fewer ranks, or ask an administrator (setting quotas)")


def priority_errors(priority: int, highest: int | None, person: str | None) -> Iterator[FieldError]:
    """A priority above the ``highest`` that ``person`` may give; None: any."""
    if highest is not None and priority > highest:
        rule = f"must be at most {highest} for {person or LOCAL} (setting max_priority)"
        hint = "give a lower one, ask an administrator to change it (PATCH /jobs/ID), or have max_priority raised"
        yield FieldError("priority", rule, priority, hint)
