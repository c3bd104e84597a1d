"""Who gets which slots now, and who may start before their turn (EASY backfill). Pure: rows in, a plan out.

The first job of each kind of device that does not fit gets a reservation: certain slots from a certain time on. A later
job may have any of these slots only if it ends before that time. So none starts that would delay the reservation.
Times are in seconds from now.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import LinkRule
from rekindle.contract.states import JobState
from rekindle_service.config.settings import Preemption
from rekindle_service.jobs.quotas import Quotas, owner_of, slots_by_owner, slots_wanted
from rekindle_service.jobs.scheduler_health import Prediction
from rekindle_service.launch.placement import usable_slots
from rekindle_service.launch.registry import launcher_of, takes_slots
from rekindle_service.machine.slots import (
    Link,
    Machine,
    Slot,
    choose_slots,
    free_shares,
    fullest_first,
    slots_with_room,
)
from rekindle_service.scheduler import waiting_reasons
from rekindle_service.scheduler.durations import DISPLACED_SECONDS, UNKNOWN
from rekindle_service.scheduler.preemption import may_stop
from rekindle_service.store.tables import Job

SHOWN_POSITIONS = 200
"""Queue positions that are shown; with more of them, every start would rewrite all rows."""

EXAMINED_JOBS = 1000
"""Waiting jobs of each kind of device that may start before their turn; those after them wait for it."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """``job`` will start after ``at`` seconds on ``slots``; ``last`` is the job that has to end for that.

    ``at`` is ``UNKNOWN`` where too few jobs end at a known time: then these are all slots that it could get.
    """

    job: Job
    slots: frozenset[str]
    at: float
    last: Job | None = None

    def permits(self, slot: str, seconds: float | None) -> bool:
        """Whether a job that ends within ``seconds`` (None: nobody knows) may have ``slot`` now."""
        return slot not in self.slots or (seconds is not None and seconds <= self.at)


@dataclass(frozen=True, slots=True)
class Holder:
    """A job that holds ``share`` of each of ``slots`` for ``seconds`` more (``UNKNOWN``: nobody knows)."""

    job: Job
    slots: Sequence[str]
    share: float
    seconds: float


def reserve(
    job: Job, slots: Sequence[Slot], free: Mapping[str, float], holders: Iterable[Holder], links: Sequence[Link]
) -> Reservation:
    """The earliest time at which the job fits. ``slots`` are those that it may ever get; ``free``: see ``shares``."""
    spec, shares = job.spec, dict(free)
    latest: dict[str, float] = {}
    for holder in sorted(holders, key=lambda each: each.seconds):
        if holder.seconds == UNKNOWN:
            break
        for name in holder.slots:
            shares[name] = min(1.0, shares.get(name, 0.0) + holder.share)
            latest[name] = holder.seconds
        usable = slots_with_room(slots, shares, spec.gpu_share)
        if latest.keys() & {slot.name for slot in usable}:
            chosen = _latest_freed(job, usable, latest, links)
            if chosen is not None:
                return Reservation(job, frozenset(chosen), holder.seconds, holder.job)
    return Reservation(job, frozenset(slot.name for slot in slots), UNKNOWN)


def _latest_freed(
    job: Job, usable: Sequence[Slot], latest: Mapping[str, float], links: Sequence[Link]
) -> list[str] | None:
    """Slots for the reservation: those that become free last, so that the others stay free for jobs before it."""
    count = job.spec.min_devices
    if job.spec.links is not LinkRule.PREFERRED:
        chosen = choose_slots(usable, count, links, job.spec.links)
        return None if chosen is None else [slot.name for slot in chosen]
    if len(usable) < count:
        return None
    by_time = sorted(usable, key=lambda slot: (-latest.get(slot.name, 0.0), -slot.index))
    return [slot.name for slot in by_time[:count]]


class Timeline:
    """When the jobs that wait will start, if each runs as long as expected and none starts before its turn.

    Slots that are shared count as whole ones, so that an estimate is rather late than early. ``predictions``: the jobs
    whose start is known, next first.
    """

    def __init__(self, slots: Iterable[Slot], holders: Iterable[Holder]) -> None:
        self.predictions: list[Prediction] = []
        self._free_at = {slot.name: 0.0 for slot in slots}
        for holder in holders:
            self.hold(holder)

    def hold(self, holder: Holder) -> None:
        """A job has, or gets, slots now."""
        for name in holder.slots:
            if name in self._free_at:
                self._free_at[name] = max(self._free_at[name], holder.seconds)

    def add(self, job: Job, slots: Iterable[Slot], expected: Callable[[Job], float | None], at: float = 0.0) -> float:
        """Seconds until the job starts, not before ``at``; ``UNKNOWN`` where nobody knows."""
        names = sorted((slot.name for slot in slots if slot.name in self._free_at), key=self._free_at.__getitem__)
        chosen = names[: job.spec.min_devices]
        if len(chosen) < job.spec.min_devices:
            return UNKNOWN
        start = max(at, self._free_at[chosen[-1]])
        seconds = expected(job)
        for name in chosen:
            self._free_at[name] = UNKNOWN if seconds is None else start + seconds
        if start != UNKNOWN:
            self.predictions.append(Prediction(job, chosen, start, seconds))
        return start


class QueuePosition(NamedTuple):
    """What a queued job shows. ``starts_in``: seconds, None where nobody knows."""

    position: int | None
    waiting_for: str | None
    starts_in: float | None = None


@dataclass(slots=True)
class Allocation:
    """What to start, in this order, and what everybody else waits for."""

    starts: list[tuple[Job, list[str]]] = field(default_factory=list)  # slot names
    queue_positions: dict[str, QueuePosition] = field(default_factory=dict)  # by job id
    waiting_head: list[Job] = field(default_factory=list)  # jobs that lack slots alone, next first; see ``preemption``
    reservations: list[Reservation] = field(default_factory=list)
    predictions: list[Prediction] = field(default_factory=list)


def _nothing(_: Job) -> None:
    return None


@dataclass(frozen=True, slots=True)
class AllocationState:
    """What an allocation depends on, apart from the queue.

    ``job_state`` gives the state of a job, None for an unknown one, and ``job_label`` what people call it. Of a job in
    seconds, None where nobody knows: ``remaining`` is when a running one leaves its slots, ``max_seconds`` within what
    a queued one ends, ``expected`` how long it will probably run; ``shown_remaining`` and ``shown_expected`` are for
    estimates that decide nothing (None: the same). With ``lack_of_space`` on the disk nothing starts; with
    ``own_lack_of_space`` that job does not. ``unusable`` has the reasons by slot name. ``kinds``: device kinds that the
    queue needs (None: any), and names of launchers whose jobs take no slots. ``obstacles``: why such a launcher can
    launch no job now, by its name; None where it can.
    """

    machine: Machine
    holding: Sequence[Job] = ()
    job_state: Callable[[str], JobState | None] = lambda _: None
    job_label: Callable[[str], str] = "job {}".format
    remaining: Callable[[Job], float | None] = _nothing
    max_seconds: Callable[[Job], float | None] = _nothing
    expected: Callable[[Job], float | None] = _nothing
    shown_remaining: Callable[[Job], float | None] | None = None
    shown_expected: Callable[[Job], float | None] | None = None
    quotas: Quotas = field(default_factory=Quotas)
    preemption: Preemption = "own"
    unusable: Mapping[str, str] = field(default_factory=dict)
    lack_of_space: str | None = None
    own_lack_of_space: Callable[[Job], str | None] = _nothing
    kinds: Container[str] | None = None
    obstacles: Mapping[str, str | None] = field(default_factory=dict)


def allocate(queue: Iterable[Job], situation: AllocationState) -> Allocation:
    """Give free slots to the queue, in its order, or before their turn to jobs that delay no reservation.

    Skipped: held jobs, jobs that wait for another job, jobs whose owner or experiment has reached a limit, and jobs
    that this machine can never run. An elastic job gets as many of its ranks as there are free slots. ``queue`` is read
    only as far as anything can still be decided. A job whose launcher takes no slots is handed over to it.
    """
    round_ = _Round(situation)
    for job in queue:
        if round_.is_decided():
            break
        round_.consider(job)
    return round_.plan


class _Round:
    """One allocation while it is made."""

    def __init__(self, situation: AllocationState) -> None:
        self.plan = Allocation()
        self._in = situation
        machine, holding = situation.machine, situation.holding
        held = [(job.devices, job.spec.gpu_share) for job in holding]
        self._free = free_shares(machine, held, situation.unusable)
        self._slots = [slot for slot in machine.slots if slot.name not in situation.unusable]
        self._kinds = {slot.device for slot in machine.slots}
        self._holders = [each for job in holding for each in _holders(job, situation.remaining(job))]
        shown_remaining = situation.shown_remaining or situation.remaining
        self._shown_holders = [each for job in holding for each in _holders(job, shown_remaining(job))]
        self._shown_expected = situation.shown_expected or situation.expected
        self._timeline = Timeline(self._slots, self._shown_holders)
        self.plan.predictions = self._timeline.predictions
        self._held = slots_by_owner(holding)
        self._active: dict[str, int] = {}  # jobs of each experiment that hold slots
        for job in holding:
            self._count_active(job)
        self._waiting: dict[str, int] = {}  # jobs that wait for slots, by kind
        self._turns: dict[str, float] = {}  # seconds until the last of them starts, by kind
        self._position = 0
        self._limited = 0  # jobs that wait because of a limit

    def is_decided(self) -> bool:
        """Whether nothing that follows in the queue can start, or is shown."""
        able = {name for name, obstacle in self._in.obstacles.items() if obstacle is None}
        wanted = {kind for kind in self._kinds | able if self._in.kinds is None or kind in self._in.kinds}
        return self._position >= SHOWN_POSITIONS and wanted.isdisjoint(able) and all(map(self._is_closed, wanted))

    def _is_closed(self, kind: str) -> bool:
        if self._waiting.get(kind, 0) >= EXAMINED_JOBS:
            return True
        return not any(self._free[slot.name] for slot in self._slots if slot.device == kind)

    def consider(self, job: Job) -> None:
        """Start the job, or say why it waits."""
        obstacle = waiting_reasons.obstacle(
            job, self._in.machine, self._in.unusable, self._in.job_state, self._in.job_label
        )
        if obstacle is None and (limit := self._limit(job)) is not None:
            self._limited += 1
            obstacle = limit if self._limited <= SHOWN_POSITIONS else ""
        if obstacle is not None:
            self.plan.queue_positions[job.id] = QueuePosition(None, obstacle or None)
        elif not takes_slots(job.spec):
            self._hand_over(job)
        elif self._position < SHOWN_POSITIONS or not self._is_closed(job.spec.device_kind):
            self._place(job)

    def _limit(self, job: Job) -> str | None:
        """Which limit of its experiment or its owner the job would exceed."""
        if job.parallel is not None and self._active.get(job.experiment_id or "", 0) >= job.parallel:
            return waiting_reasons.parallel_limit(job.parallel)
        owner = owner_of(job)
        limit = self._in.quotas.of(owner).slots
        if limit is None or not takes_slots(job.spec):
            return None
        held, needed = self._held.get(owner, 0.0), slots_wanted(job.spec)
        return waiting_reasons.quota(owner, held, limit, needed) if held + needed > limit else None

    def _hand_over(self, job: Job) -> None:
        """To its launcher, which has resources of its own."""
        obstacle = self._in.obstacles.get(launcher_of(job.spec).name)
        if obstacle is None and self._in.lack_of_space is not None:
            obstacle = waiting_reasons.DISK_SPACE + self._in.lack_of_space
        obstacle = obstacle or self._own_lack(job)
        if obstacle is None:
            self._start(job, [])
        else:
            self.plan.queue_positions[job.id] = QueuePosition(None, obstacle)

    def _place(self, job: Job) -> None:
        slots = usable_slots(job.spec, self._slots)
        room = slots_with_room(slots, self._free, job.spec.gpu_share)
        permitted = self._permitted(job, room)
        chosen = None if self._in.lack_of_space is not None else self._choose(job, permitted)
        if chosen is None:
            self._wait(job, slots, room)
        elif (lack := self._own_lack(job)) is not None:
            self.plan.queue_positions[job.id] = QueuePosition(None, lack)
        else:
            self._start(job, [slot.name for slot in chosen])

    def _permitted(self, job: Job, room: Sequence[Slot]) -> list[Slot]:
        """Slots that no reservation keeps from it."""
        if not self.plan.reservations:
            return list(room)
        seconds = self._in.max_seconds(job)
        return [slot for slot in room if all(each.permits(slot.name, seconds) for each in self.plan.reservations)]

    def _own_lack(self, job: Job) -> str | None:
        lack = self._in.own_lack_of_space(job)
        return None if lack is None else waiting_reasons.DISK_SPACE + lack

    def _choose(self, job: Job, slots: Sequence[Slot]) -> list[Slot] | None:
        """Choose as many devices as the job can use now; None where it cannot start."""
        spec, each = job.spec, job.spec.devices_per_rank
        for ranks in range(self._most_ranks(job, len(slots)), spec.min_ranks - 1, -1):
            if spec.gpu_share < 1:
                return fullest_first(slots, self._free)[: ranks * each]
            if (chosen := choose_slots(slots, ranks * each, self._in.machine.links, spec.links)) is not None:
                return chosen
        return None

    def _most_ranks(self, job: Job, slots: int) -> int:
        """Ranks for which there are slots, as far as the owner's quota goes."""
        spec, limit = job.spec, self._in.quotas.of(owner_of(job)).slots
        if limit is not None:
            slots = min(slots, int((limit - self._held.get(owner_of(job), 0.0)) / spec.gpu_share))
        return min(slots // spec.devices_per_rank, spec.max_ranks)

    def _start(self, job: Job, names: list[str]) -> None:
        self.plan.starts.append((job, names))
        share = job.spec.gpu_share
        for name in names:
            self._free[name] = max(0.0, self._free[name] - share)
        self._held[owner_of(job)] = self._held.get(owner_of(job), 0.0) + len(names) * share
        self._count_active(job)
        if names:
            self._holders.append(Holder(job, names, share, _or_unknown(self._in.expected(job))))
            shown = Holder(job, names, share, _or_unknown(self._shown_expected(job)))
            self._shown_holders.append(shown)
            self._timeline.hold(shown)

    def _wait(self, job: Job, slots: Sequence[Slot], room: Sequence[Slot]) -> None:
        kind, first = job.spec.device_kind, None
        self._waiting[kind] = self._waiting.get(kind, 0) + 1
        if self._in.lack_of_space is None:
            self.plan.waiting_head.append(job)
            first = self._reserve(job, slots)
        self._position += 1
        if self._position > SHOWN_POSITIONS:
            return
        starts_in = self._estimate(job, slots, first)
        self.plan.queue_positions[job.id] = QueuePosition(
            self._position, self._reason(job, room, first), None if starts_in == UNKNOWN else starts_in
        )

    def _reserve(self, job: Job, slots: Sequence[Slot]) -> Reservation | None:
        """Reserve slots if the job is the first of its kind, or the first that wants some of the named slots.

        Returns the reservation as it is shown, which may have another time than the one that decides.
        """
        taken: set[str] = set().union(*(each.slots for each in self.plan.reservations))
        others = [slot for slot in slots if slot.name not in taken]
        if not others or any(_same_line(job.spec, each.job.spec) for each in self.plan.reservations):
            return None
        links = self._in.machine.links
        self.plan.reservations.append(reserve(job, others, self._free, self._holders, links))
        return reserve(job, others, self._free, self._shown_holders, links)

    def _estimate(self, job: Job, slots: Sequence[Slot], first: Reservation | None) -> float:
        if self._in.lack_of_space is not None:
            return UNKNOWN
        kind = job.spec.device_kind
        turn = max(self._turns.get(kind, 0.0), 0.0 if first is None else first.at)
        self._turns[kind] = self._timeline.add(job, slots, self._shown_expected, turn)
        return self._turns[kind]

    def _reason(self, job: Job, room: Sequence[Slot], first: Reservation | None) -> str:
        if self._in.lack_of_space is not None:
            return waiting_reasons.DISK_SPACE + self._in.lack_of_space
        if first is not None:
            return waiting_reasons.first_in_line(job, len(room), first) + self._kept_from(job)
        kind = job.spec.device_kind
        before = next(each for each in self.plan.reservations if each.job.spec.device_kind == kind)
        return waiting_reasons.behind(job, len(room), before)

    def _kept_from(self, job: Job) -> str:
        """What running jobs of lower priority keep their slots although this one waits for them."""
        kind, preemption = job.spec.device_kind, self._in.preemption
        lower = [each for each in self._in.holding if each.spec.device_kind == kind and each.priority < job.priority]
        kept = any(not may_stop(job, each, preemption) for each in lower)
        return waiting_reasons.NOT_STOPPED[preemption] if kept else ""

    def _count_active(self, job: Job) -> None:
        if job.experiment_id is not None:
            self._active[job.experiment_id] = self._active.get(job.experiment_id, 0) + 1


def _holders(job: Job, seconds: float | None) -> list[Holder]:
    """One that gets other slots leaves those that it is to give up soon."""
    kept = job.devices if job.wanted_devices is None else [each for each in job.devices if each in job.wanted_devices]
    left, share = [name for name in job.devices if name not in kept], job.spec.gpu_share
    made = [Holder(job, kept, share, _or_unknown(seconds)), Holder(job, left, share, DISPLACED_SECONDS)]
    return [holder for holder in made if holder.slots]


def _or_unknown(seconds: float | None) -> float:
    return UNKNOWN if seconds is None else seconds


def _same_line(spec: JobSpec, other: JobSpec) -> bool:
    """Whether a job waits in the same line as one that has a reservation: any slot of the kind, or the same named."""
    if spec.device_kind != other.device_kind:
        return False
    return not other.device_names or set(spec.device_names) == set(other.device_names)
