"""What routes depend on: the parts of the application, and the job, attempt or rank that a request names."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Query, Request
from pydantic import StringConstraints

from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.access.access_control import AccessControl
from rekindle_service.access.permissions import Identity, Permissions
from rekindle_service.api.auth import IdentityDep, require_access
from rekindle_service.api.problems import ApiError
from rekindle_service.api.shared_results import JobJson, SingleFlightCache
from rekindle_service.config.home import Home, is_job_id, server_user
from rekindle_service.job_wording import STATE_PHRASES, quoted_label
from rekindle_service.jobs.device_states import DeviceStates
from rekindle_service.jobs.quotas import Quotas
from rekindle_service.jobs.scheduler_health import Outlook, Prospect, SchedulerHealth
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.machine.monitor import MachineMonitor
from rekindle_service.machine.slots import Machine
from rekindle_service.retention.pruner import Pruner
from rekindle_service.run_readers.rank_rows import attempt_numbers, rank_numbers
from rekindle_service.store import Store
from rekindle_service.store.job_queries import MIN_ID_PREFIX, Lookup
from rekindle_service.store.tables import Experiment, Job, Row
from rekindle_service.suggestions import closest

_MAX_NAMED = 10  # unknown ranks that an error names

JobId = Annotated[str, Path(description="Id of the job")]
RankNumber = Annotated[int, Path(ge=0, le=1 << 31, description="Global rank")]
AttemptNumber = Annotated[int | None, Query(ge=0, le=1 << 31, description="Number of the attempt; default: the latest")]
ChosenAttempt = Annotated[int | None, Query(ge=0, le=1 << 31, description="Number of the attempt; default: all")]
ChosenMetrics = Annotated[
    list[Annotated[str, StringConstraints(max_length=200)]] | None,
    Query(max_length=50, description="Only this metric; can be given several times"),
]
_SHOWN = 64  # characters of a reference
_MAX_HINTS = 3
_LATEST = 5


@dataclass(slots=True)
class Listeners:
    """How many clients receive events. Changed in the event loop alone."""

    count: int = 0


@dataclass(frozen=True, slots=True)
class AppState:
    """The parts of the application that routes use. ``wake`` makes the reconciler act on changed rows at once."""

    home: Home
    store: Store
    machine: Machine
    devices: DeviceStates
    monitor: MachineMonitor
    retention: Pruner
    submitter: Submitter
    access: AccessControl
    host: str
    max_bundle_bytes: int
    started_at: float  # seconds since the epoch
    stopping: threading.Event
    wake: Callable[[], None]
    scheduler_health: Callable[[], SchedulerHealth]
    prospect: Callable[[Job], Prospect]
    outlook: Callable[[], Outlook]
    public_host: str | None = None  # of the reverse proxy
    isolation: str = ""  # one sentence: from what jobs are kept apart
    quotas: Quotas = field(default_factory=Quotas)
    fair_share_days: float = 7.0
    listeners: Listeners = field(default_factory=Listeners)
    polls: SingleFlightCache = field(default_factory=SingleFlightCache)
    job_json: JobJson = field(default_factory=JobJson)


async def _app_state(request: Request) -> AppState:
    """Return the parts. A coroutine, since a function would wait for one of the threads that all routes share."""
    state: AppState = request.app.state.rekindle
    return state


AppStateDep = Annotated[AppState, Depends(_app_state)]


def _readable_by(state: AppStateDep, identity: IdentityDep) -> str | None:
    return state.access.permissions.readable_by(identity)


ReadableBy = Annotated[str | None, Depends(_readable_by)]
"""The one owner whose jobs and experiments the request may read; None: those of everybody. Every query needs it."""


def _changeable_by(identity: IdentityDep) -> str | None:
    return Permissions.changeable_by(identity)


ChangeableBy = Annotated[str | None, Depends(_changeable_by)]
"""The one owner whose jobs the request may change, "" for none; None: those of everybody."""


_IDEMPOTENCY_KEY = (
    "Makes a retry safe: a key of your choice, up to 200 visible ASCII characters, such as a UUID. A repeated request "
    "with the same key and body creates nothing and returns what the first one created; with another body it is "
    "rejected (422). A key is valid as long as what it created exists"
)


def _scoped_key(
    identity: IdentityDep,
    idempotency_key: Annotated[
        Annotated[str, StringConstraints(pattern=r"^[\x21-\x7e]+$", max_length=200)] | None,
        Header(alias="Idempotency-Key", description=_IDEMPOTENCY_KEY),
    ] = None,
) -> str | None:
    """The key as it is stored: keys of one person never return a job of another. Only one may have no prefix."""
    if idempotency_key is None or identity.person == server_user():
        return idempotency_key
    return f"{identity.person} {idempotency_key}"


IdempotencyKeyDep = Annotated[str | None, Depends(_scoped_key)]


def submitted_by(state: AppState, identity: Identity, readable_by: str | None) -> dict[str, Any]:
    """Fields of a submission that say who sends it, and what they may do."""
    highest = state.access.permissions.max_priority(identity)
    return {"owner": identity.person, "readable_by": readable_by, "max_priority": highest}


def find_job(state: AppStateDep, request: Request, job_id: JobId) -> Job:
    """The job of this id. Raises ApiError: 404 where it must not be read, 403 where it must not be changed."""
    job, unknown = _job(state, job_id)
    if job is None:
        raise unknown
    require_access(state.access.permissions, request, job.owner, f"job {job.id}", unknown)
    return job


def readable_job(state: AppState, identity: Identity, job_id: str) -> Job:
    """Another job that a request names. Raises ApiError (404)."""
    job, unknown = _job(state, job_id)
    if job is None or not state.access.permissions.may_read(identity, job.owner):
        raise unknown
    return job


def _job(state: AppState, job_id: str) -> tuple[Job | None, ApiError]:
    detail = (
        f"there is no job {job_id[:64]!r}; GET /api/v1/jobs lists all jobs, and GET /api/v1/jobs/resolve?ref=… finds "
        "one by its number, its name or the first characters of its id (at least 4)"
    )
    return state.store.job(job_id) if is_job_id(job_id) else None, ApiError(404, "unknown-job", detail)


JobDep = Annotated[Job, Depends(find_job)]


def find_run_dir(state: AppStateDep, job: JobDep) -> RunDir:
    """Raises ApiError (503) where the files of the job do not respond: no thread is to wait for them, too."""
    if job.id in state.scheduler_health().stuck:
        detail = f"the files of job {job.id} do not respond: check the file system of {state.home.run_dir(job.id).root}"
        raise ApiError(503, "files-unresponsive", detail, headers={"Retry-After": "10"})
    return state.home.run_dir(job.id)


RunDirDep = Annotated[RunDir, Depends(find_run_dir)]


def known_attempts(store: Store, run_dir: RunDir) -> list[int]:
    """The attempts of a job, ascending: those of its rows, and directories that these do not know (yet)."""
    return sorted({*store.attempt_numbers(run_dir.job_id), *attempt_numbers(run_dir)})


class JobAttempts:
    """The attempts of the job of a request."""

    def __init__(self, state: AppStateDep, job: JobDep, run_dir: RunDirDep) -> None:
        self._job, self._store = job, state.store
        self.numbers = known_attempts(state.store, run_dir)

    def number(self, requested: int | None) -> int:
        """The number of the requested attempt, by default of the latest. Raises ApiError (404)."""
        name = quoted_label(self._job.name, self._job.number)
        if not self.numbers:
            detail = f"{name} has no attempt yet: it {STATE_PHRASES[self._job.state]}"
            raise ApiError(404, "unknown-attempt", detail)
        number = self.numbers[-1] if requested is None else requested
        if number not in self.numbers:
            detail = f"{name} has no attempt {number}; it has {_range('attempt', self.numbers)}"
            raise ApiError(404, "unknown-attempt", detail)
        return number

    def find(self, requested: int | None) -> AttemptInfo:
        """The requested attempt, by default the latest, in full. Raises ApiError (404)."""
        number = self.number(requested)
        return self._store.attempt(self._job.id, number) or AttemptInfo(number)

    def chosen(self, requested: int | None) -> list[int]:
        """The requested attempt, by default all, ascending. Raises ApiError (404)."""
        return self.numbers if requested is None else [self.number(requested)]


AttemptsDep = Annotated[JobAttempts, Depends()]


def find_attempt(attempts: AttemptsDep, attempt: AttemptNumber = None) -> AttemptInfo:
    return attempts.find(attempt)


AttemptDep = Annotated[AttemptInfo, Depends(find_attempt)]


def find_rank(job: JobDep, run_dir: RunDirDep, attempt: AttemptDep, rank: RankNumber) -> int:
    """The requested rank of the attempt. Raises ApiError (404)."""
    require_rank(job, attempt, rank_numbers(run_dir, attempt), [rank])
    return rank


def require_rank(job: Job, attempt: AttemptInfo, ranks: list[int], requested: Sequence[int]) -> None:
    """Raises ApiError (404) where none of the requested ranks is among ``ranks``, those of the attempt."""
    if requested and not set(requested) & set(ranks):
        missing = ", ".join(map(str, requested[:_MAX_NAMED]))
        detail = f"attempt {attempt.number} of job {job.id} has no rank {missing}; it has {_range('rank', ranks)}"
        raise ApiError(404, "unknown-rank", detail)


RankDep = Annotated[int, Depends(find_rank)]


def _range(noun: str, numbers: list[int]) -> str:
    """``ranks 0-3`` where none is missing in between, else the list."""
    if not numbers:
        return f"no {noun}s"
    if len(numbers) == 1:
        return f"{noun} {numbers[0]}"
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{noun}s {numbers[0]}\N{EN DASH}{numbers[-1]}"
    return f"{noun}s {', '.join(map(str, numbers))}"


def resolve_job(store: Store, reference: str, readable_by: str | None) -> Job:
    """The one job that ``reference`` names among all that may be read.

    Raises ApiError: 404 with the names most like it, or 409 where several ids start with it.
    """
    return _resolve("job", store.lookup, reference, readable_by, (409, "ambiguous-job"))


def resolve_experiment(store: Store, reference: str, readable_by: str | None) -> Experiment:
    """The one experiment that ``reference`` names among all that may be read. Raises ApiError: 404."""
    return _resolve("experiment", store.experiments.lookup, reference, readable_by, (404, "unknown-experiment"))


def _resolve(
    kind: str, lookup: Lookup[Row], reference: str, readable_by: str | None, ambiguous: tuple[int, str]
) -> Row:
    found = lookup.matches(reference, readable_by)
    if len(found) == 1:
        return found[0]
    if not found:
        raise ApiError(404, f"unknown-{kind}", _unknown(kind, lookup, reference, readable_by))
    listed = ", ".join(f"{each.id} (#{each.number} {each.name})" for each in found)
    detail = f"{len(found)} ids or more start with {reference!r}: {listed}. Give more of the id, or the number"
    raise ApiError(*ambiguous, detail)


def _unknown(kind: str, lookup: Lookup[Row], reference: str, readable_by: str | None) -> str:
    shown = reference[:_SHOWN] + "…" * (len(reference) > _SHOWN)
    hint = _hint(kind, reference[:_SHOWN], lookup.recent_names(readable_by))
    is_short = len(reference) < MIN_ID_PREFIX and reference.isalnum() and not reference.isdecimal()
    short = f" (of an id, give at least {MIN_ID_PREFIX} characters)" if is_short else ""
    return f"No {kind} is called {shown!r}, nor has it as id or number{short}; {hint}"


def _hint(kind: str, reference: str, names: dict[str, int]) -> str:
    """The names that are most like ``reference``, upper or lower case; else the latest."""
    by_folded = {name.casefold(): name for name in reversed(names)}  # the latest of those that differ only in case
    alike = [by_folded[each] for each in closest(reference.casefold(), by_folded)[:_MAX_HINTS]]
    listed = [f"{name!r} (#{names[name]})" for name in alike or list(names)[:_LATEST]]
    if alike:
        return f"did you mean {' or '.join(listed)}?"
    return f"the latest are {', '.join(listed)}" if listed else f"there is no {kind} yet"
