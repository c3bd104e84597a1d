"""Who gets which slots now. Pure: rows in, a plan out."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from rekindle.contract.job import JobSpec, LinkRule
from rekindle.contract.states import TERMINAL, JobIntent, JobState
from rekindle_service.jobs.placement import usable_slots
from rekindle_service.machine.devices import Link, Machine, Slot, choose_slots
from rekindle_service.store.tables import Job

SHOWN_POSITIONS = 200
"""Queue positions that are shown; with more of them, every start would rewrite all rows."""

NO_CLUSTER = "Slurm, whose commands this server does not find: install them (slurm-client) or cancel the job"

_LINK_NAMES = {
    LinkRule.PREFERRED: "",
    LinkRule.REQUIRED: ", each pair linked",
    LinkRule.AVOIDED: ", no pair linked",
}


@dataclass(slots=True)
class Allocation:
    """What to start, in this order, and what everybody else waits for."""

    starts: list[tuple[Job, list[str]]] = field(default_factory=list)  # slot names
    # job id → (position, waiting for)
    queue_positions: dict[str, tuple[int | None, str | None]] = field(default_factory=dict)
    # jobs that wait for slots and could start if those that are missing were free, next first; see ``preemption``
    waiting_head: list[tuple[Job, int]] = field(default_factory=list)


def allocate(
    queue: Iterable[Job],
    machine: Machine,
    taken: Iterable[str],
    job_state: Callable[[str], JobState | None],
    lack_of_space: str | None = None,
    own_lack_of_space: Callable[[Job], str | None] = lambda _: None,
    *,
    has_cluster: bool = False,
) -> Allocation:
    """Give free slots to the queue, strictly in its order within each kind of device.

    A job that does not fit yet blocks every later job for its kind of device, so small jobs never starve a big one; one
    that names its slots blocks those slots alone.
    Skipped: held jobs, jobs that wait for another job (``job_state`` gives its state, None for an unknown one), and
    jobs that this machine can never run. An elastic job gets as many of its ranks as there are free slots. ``queue``
    is in the order of the queue and is read only as far as anything can still be decided. With ``lack_of_space`` on the
    disk nothing starts; with ``own_lack_of_space`` that job does not. A job for Slurm takes no slot here.
    """
    plan = Allocation()
    free = _free_slots(machine, set(taken))
    blocked: set[str] = set()
    position = 0
    for job in queue:
        if len(blocked) == len(free) and position >= SHOWN_POSITIONS and not has_cluster:
            break
        obstacle = _blocking_reason(job, machine, job_state)
        if obstacle is None and job.spec.is_cluster:
            obstacle = _cluster_obstacle(has_cluster, lack_of_space)
        if obstacle is None and (lack := own_lack_of_space(job)) is not None:
            obstacle = f"disk space: {lack}"
        if obstacle is not None:
            plan.queue_positions[job.id] = (None, obstacle)
            continue
        if job.spec.is_cluster:
            plan.starts.append((job, []))
            continue
        kind = job.spec.device_kind
        slots = usable_slots(job.spec, free[kind])
        chosen = None if lack_of_space is not None or kind in blocked else _choose(job.spec, slots, machine.links)
        if chosen is not None:
            free[kind] = [slot for slot in free[kind] if slot not in chosen]
            plan.starts.append((job, [slot.name for slot in chosen]))
            continue
        if job.spec.device_names:
            free[kind] = [slot for slot in free[kind] if slot not in slots]
        else:
            blocked.add(kind)
        position += 1
        if lack_of_space is None:
            plan.waiting_head.append((job, max(0, job.spec.min_devices - len(slots))))
        if position <= SHOWN_POSITIONS:
            lack = f"disk space: {lack_of_space}" if lack_of_space else f"{_requested(job.spec)}, {len(slots)} free"
            plan.queue_positions[job.id] = (position, lack)
    return plan


def _cluster_obstacle(has_cluster: bool, lack_of_space: str | None) -> str | None:
    """Why no job can be handed to Slurm now."""
    if not has_cluster:
        return NO_CLUSTER
    return None if lack_of_space is None else f"disk space: {lack_of_space}"


def _choose(spec: JobSpec, slots: Sequence[Slot], links: Sequence[Link]) -> list[Slot] | None:
    """As many devices as the job can use now; None where it cannot start."""
    each = spec.devices_per_rank
    for ranks in range(min(len(slots) // each, spec.max_ranks), spec.min_ranks - 1, -1):
        if (chosen := choose_slots(slots, ranks * each, links, spec.links)) is not None:
            return chosen
    return None


def _requested(spec: JobSpec) -> str:
    """``2 cuda slots``, ``1 of cuda:5 and cuda:6``."""
    if spec.device_names:
        requested = f"{spec.min_devices} of {' and '.join(spec.device_names)}"
    else:
        requested = f"{spec.min_devices} {spec.device_kind} {'slot' if spec.min_devices == 1 else 'slots'}"
    return f"{requested}{_LINK_NAMES[spec.links]}"


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
    spec = job.spec
    if spec.is_cluster:
        return None
    if missing := set(spec.device_names) - {slot.name for slot in machine.slots}:
        return f"{', '.join(sorted(missing))}, which this machine does not have or no longer offers to jobs"
    total = machine.count(spec.device_kind)
    if spec.min_devices > total:
        return f"{spec.min_devices} {spec.device_kind} slots, but this machine has {total}"
    return None
