"""Why a queued job waits, each in one sentence without its full stop. Pure."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import LinkRule
from rekindle.contract.states import TERMINAL, JobIntent, JobState
from rekindle_service.job_wording import HELD, STATE_PHRASES
from rekindle_service.launch.registry import takes_slots
from rekindle_service.machine.slots import Machine
from rekindle_service.scheduler.durations import UNKNOWN
from rekindle_service.store.tables import Job

if TYPE_CHECKING:
    from rekindle_service.scheduler.allocation import Reservation

DISK_SPACE = "disk space: "

NOT_STOPPED = {
    "off": "; its priority stops no running job (preemption is off)",
    "own": "; its priority does not stop jobs of other owners (preemption is own)",
    "all": "",
}
"""What a waiting job adds that must not stop running jobs of lower priority, by the setting ``preemption``."""

_LINK_NAMES = {
    LinkRule.PREFERRED: "",
    LinkRule.REQUIRED: ", each pair linked",
    LinkRule.AVOIDED: ", no pair linked",
}


def obstacle(
    job: Job,
    machine: Machine,
    unusable: Mapping[str, str],
    job_state: Callable[[str], JobState | None],
    job_label: Callable[[str], str],
) -> str | None:
    """Why the job could not start even if no other job ran, or None."""
    if job.intent is not JobIntent.RUN:
        return HELD
    waiting = _dependency(job, job_state, job_label)
    if waiting is not None:
        return waiting
    return _too_big(job.spec, machine, unusable) if takes_slots(job.spec) else None


def _dependency(job: Job, job_state: Callable[[str], JobState | None], job_label: Callable[[str], str]) -> str | None:
    for other in job.spec.after:
        state = job_state(other)
        if state is None:
            return f"job {other}, which does not exist: cancel this job and submit it again without it"
        if state in TERMINAL - {JobState.SUCCEEDED}:
            return f"{job_label(other)}, which {STATE_PHRASES[state]}: resume that one, or cancel this one"
        if state is not JobState.SUCCEEDED:
            return f"{job_label(other)} to succeed"
    for other in job.spec.after_any:
        if job_state(other) not in {None, *TERMINAL}:
            return f"{job_label(other)} to end"
    return None


def _too_big(spec: JobSpec, machine: Machine, unusable: Mapping[str, str]) -> str | None:
    names = [slot.name for slot in machine.slots if slot.device == spec.device_kind]
    if missing := set(spec.device_names) - set(names):
        return f"{', '.join(sorted(missing))}, which this machine does not have or no longer offers to jobs"
    if spec.min_devices > len(names):
        return f"{_slots(spec)}, but this machine has {len(names)}"
    if not unusable:
        return None
    wanted = [name for name in names if not spec.device_names or name in spec.device_names]
    put_aside = [name for name in wanted if name in unusable]
    if spec.min_devices > len(wanted) - len(put_aside):
        why = "; ".join(f"{name}: {unusable[name]}" for name in put_aside[:4])
        return f"{requested(spec)}, but only {len(wanted) - len(put_aside)} can be used now ({why})"
    return None


def shown_lack(job: Job) -> str | None:
    """What disk space a queued job lacks of its own, as it was last shown."""
    why = job.waiting_for or ""
    return why.removeprefix(DISK_SPACE) if why.startswith(DISK_SPACE) else None


def parallel_limit(parallel: int) -> str:
    jobs = "one job" if parallel == 1 else f"{parallel} jobs"
    return f"another job of its experiment to end: it runs {jobs} at a time"


def quota(owner: str, held: float, limit: int, needed: float) -> str:
    """``its owner ann holds 4 of 4 slots``."""
    need = f", and it needs {needed:g}" if needed > 1 else ""
    return f"its owner {owner} holds {held:g} of {limit} slots{need}"


def _slots(spec: JobSpec) -> str:
    """``2 GPU slots``."""
    kind = "GPU" if spec.device_kind == "cuda" else "CPU"
    return f"{spec.min_devices} {kind} {'slot' if spec.min_devices == 1 else 'slots'}"


def requested(spec: JobSpec) -> str:
    """``2 GPU slots``, ``1 of cuda:5 and cuda:6``, ``0.25 of 1 GPU slot``."""
    named = f"{spec.min_devices} of {' and '.join(spec.device_names)}" if spec.device_names else _slots(spec)
    share = "" if spec.gpu_share == 1 else f"{spec.gpu_share:g} of "
    return f"{share}{named}{_LINK_NAMES[spec.links]}"


def lack(spec: JobSpec, free: int) -> str:
    """``3 CPU slots, 1 free``."""
    return f"{requested(spec)}, {free} free"


def first_in_line(job: Job, free: int, made: "Reservation") -> str:
    """What a job with a reservation lacks, and which job has to end."""
    ends = "" if made.at == UNKNOWN or made.last is None else f", until #{made.last.number} ends"
    return lack(job.spec, free) + ends


def behind(job: Job, free: int, before: "Reservation") -> str:
    """Why a job after one with a reservation waits: ``after #24, which needs 3 slots`` where it would fit."""
    first = f"after #{before.job.number}"
    if free < job.spec.min_devices:
        return f"{lack(job.spec, free)}, {first}"
    devices = before.job.spec.min_devices
    return f"{first}, which needs {devices} {'slot' if devices == 1 else 'slots'}"
