"""The tables: plain columns, no behaviour. Times are seconds since the epoch."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, TypeVar

from sqlalchemy import JSON, Column, Dialect, Enum, Index, String, TextClause, TypeDecorator, text
from sqlmodel import Field, SQLModel

from rekindle.contract.job import JobSpec
from rekindle.contract.states import JobIntent, JobState


def _enum_column(kind: type[StrEnum]) -> Any:
    """A text column that stores the members' values and returns members."""
    names = Enum(kind, values_callable=lambda members: [one.value for one in members], native_enum=False, length=16)
    return Column(names, nullable=False)


class SpecColumn(TypeDecorator[JobSpec]):
    """A ``JobSpec`` as one JSON value: a new option of a job needs no new column."""

    impl = JSON
    cache_ok = True

    def process_bind_param(self, value: JobSpec | None, dialect: Dialect) -> dict[str, Any] | None:
        return None if value is None else value.to_json()

    def process_result_value(self, value: dict[str, Any] | None, dialect: Dialect) -> JobSpec | None:
        return None if value is None else JobSpec.from_json(value)

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        """A value inside the JSON is compared as JSON, not as a whole spec."""
        return JSON().coerce_compared_value(op, value)


class TagsColumn(TypeDecorator[list[str]]):
    """Tags as one text, each between spaces, so that one of them is found by ``like '% tag %'``; "" for none."""

    impl = String
    cache_ok = True

    def process_bind_param(self, value: list[str] | None, dialect: Dialect) -> str:
        return f" {' '.join(value)} " if value else ""

    def process_result_value(self, value: str | None, dialect: Dialect) -> list[str]:
        return (value or "").split()

    def coerce_compared_value(self, op: Any, value: Any) -> Any:
        """A part of the text is compared as text."""
        return String()


NEW_SLURM_LAUNCH: Mapping[str, Any] = MappingProxyType(
    {"job_id": None, "state": None, "reason": None, "hosts": [], "stopped": False, "excluded": {}}
)
"""``Job.slurm`` of a launch of which nothing is known yet.

``stopped``: this server has cancelled the Slurm job. The other keys are those of ``SlurmPublic`` of the API.
"""

LOCAL = "local"
"""Owner of a job that was submitted without a name, as everybody sees it."""

_LISTED = ("state", "owner", "experiment_id", "name")
"""What lists of jobs filter by. An index that has them all answers any list without reading the rows of other jobs."""

_UNFINISHED = text("ended_at IS NULL AND started_at IS NOT NULL")
_POSITIONED = text("queue_position IS NOT NULL")

# Sections of the overview, as conditions that a query has to repeat word by word for their index to be used.
UNSEEN_FAILURES = text("state = 'failed' AND seen_at IS NULL AND archived_at IS NULL")
HELD = text("state = 'queued' AND intent = 'hold'")
UNPLACED = text("state = 'queued' AND intent <> 'hold' AND queue_position IS NULL")
DONE = text("ended_at IS NOT NULL AND archived_at IS NULL AND (state <> 'failed' OR seen_at IS NOT NULL)")
TAGGED = text("tags <> ''")
ARCHIVED = text("archived_at IS NOT NULL")

CHECKED = text("device_check <> 'null'")
"""Jobs whose device is to be checked, or is being checked."""


def _partial_index(name: str, condition: TextClause, *columns: str) -> Index:
    """An index of the rows for which ``condition`` holds, alone."""
    return Index(f"ix_job_{name}", *columns, sqlite_where=condition)


def _list_index(first: str) -> Index:
    """Jobs with the same value of ``first`` by number, with all other columns of ``_LISTED``."""
    return Index(f"ix_job_{first}", first, "number", *[column for column in _LISTED if column != first])


class Job(SQLModel, table=True):
    """One job: what was requested, where it is, and how far it has come.

    Rows of the past stay in this table, but no question about the present reads them: each has an index that leads to
    the jobs that it is about. ``tests/integration/test_many_jobs.py`` checks that.
    """

    __table_args__ = (
        Index("ix_job_queue", "state", "priority", "number"),
        Index("ix_job_number", "number", *_LISTED),
        *map(_list_index, _LISTED),
        Index("ix_job_owner_state", "owner", "state", "number"),
        Index("ix_job_intent", "intent", "state"),
        _partial_index("queue_position", _POSITIONED, "queue_position"),
        _partial_index("unfinished", _UNFINISHED, "started_at"),
        _partial_index("unseen", UNSEEN_FAILURES, "state", "ended_at", "owner"),
        _partial_index("held", HELD, "number", "owner"),
        _partial_index("unplaced", UNPLACED, "number", "owner"),
        _partial_index("done", DONE, "experiment_id", "ended_at", "owner"),
        _partial_index("tagged", TAGGED, "number", "tags", *_LISTED),
        _partial_index("archived", ARCHIVED, "number", *_LISTED),
        _partial_index("checked", CHECKED, "state", "number"),
    )

    id: str = Field(primary_key=True)
    number: int = Field(default=0, unique=True)  # 1, 2, 3 … in the order of submission, never reused
    version: int = Field(default=0, index=True)  # position of the last change in the change feed
    idempotency_key: str | None = Field(default=None, unique=True)
    request_digest: str | None = None  # SHA-256 of the request with this key
    owner: str | None = None  # name of the person who submitted it

    # what was requested
    spec: JobSpec = Field(sa_type=SpecColumn)
    name: str  # this and the next two as they are now: a person may have changed them since
    priority: int
    max_failures: int
    tags: list[str] = Field(default_factory=list, sa_type=TagsColumn, sa_column_kwargs={"nullable": False})
    note: str = ""
    archived_at: float | None = None  # since when lists of the present omit it; only of a job that has ended
    seen_at: float | None = None  # when a person has looked at how it ended
    experiment_id: str | None = Field(default=None, foreign_key="experiment.id")
    trial: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)  # of ``Trial``; ``pruned``: why
    parallel: int | None = None  # most jobs of its experiment that hold slots at once

    # where it is
    state: JobState = Field(default=JobState.QUEUED, sa_column=_enum_column(JobState))
    intent: JobIntent = Field(default=JobIntent.RUN, sa_column=_enum_column(JobIntent))
    run: int = 0  # times that it was sent off from the queue
    devices: list[str] = Field(default_factory=list, sa_type=JSON)  # slots held now, one per rank
    allocated_at: float | None = None  # when this or the latest run got its slots
    launch_number: int = 0  # of the latest Slurm job of this job; 0 on this machine
    slurm: dict[str, Any] | None = Field(default=None, sa_type=JSON)  # see ``NEW_SLURM_LAUNCH``
    queue_position: int | None = None  # 1 = next; None beyond the first 200 and when it does not wait for slots
    waiting_for: str | None = None
    estimated_start_at: float | None = None  # None where it is not known
    displaced: dict[str, Any] | None = Field(default=None, sa_type=JSON)  # see ``JobPublic``; the intent stays as it is
    wanted_devices: list[str] | None = Field(default=None, sa_type=JSON)  # slots of its next attempt, if others
    preemptions: int = 0  # times that it went back to the queue because it was displaced
    devices_since: float | None = None  # seconds since the epoch: when it got these devices, all of them
    can_resize: bool = False  # its keeper changes the devices within a run
    snapshot_at: float | None = None  # seconds since the epoch: when ``snapshot_step`` was seen to grow
    rewind: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)  # step or path to go back to, by which run
    journal_offset: int = 0  # bytes of the keeper's journal that are in these rows
    last_keeper: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)  # in them; see ``AttemptHistory``

    # how far it has come
    attempt: int = 0  # the latest; 0 = none yet
    world_size: int | None = None  # of the latest attempt
    restarts: int = 0  # attempts that followed a failure
    phase: str | None = None
    epoch: int | None = None
    epochs: int | None = None
    step: int | None = None
    steps: int | None = None
    steps_per_second: float | None = None
    progress: float | None = None  # 0 to 1
    eta_seconds: float | None = None
    snapshot_step: int | None = None  # newest durable snapshot
    checkpoints: list[dict[str, Any]] = Field(default_factory=list, sa_type=JSON)  # the script's own, latest first
    estimated_step: int | None = None  # from printed lines, where the script reports none; as the next one
    estimated_epoch: int | None = None
    goodput: float | None = None  # 0 to 1, see ``time_breakdown``
    notice: str | None = None
    stalled: dict[str, Any] | None = Field(default=None, sa_type=JSON)  # see ``StalledPublic``
    device_check: dict[str, Any] | None = Field(default=None, sa_type=JSON)  # while it is open, of ``DeviceCheck``
    outcome: dict[str, Any] | None = Field(default=None, sa_type=JSON)  # of ``contract.outcome.Outcome``
    next_try_at: float | None = None
    created_at: float
    started_at: float | None = None  # first launch
    ended_at: float | None = None


class SlotUsage(SQLModel, table=True):
    """Slot-seconds of one owner, which decay: what was used long ago counts less. See ``scheduler``."""

    __tablename__ = "owner_usage"

    owner: str = Field(primary_key=True)  # "local" for jobs without one
    slot_seconds: float
    at: float  # until when they are counted and decayed


class DeviceState(SQLModel, table=True):
    """A device that no job gets until a person enables it again, or what that person knew of it then."""

    __tablename__ = "device_state"

    device: str = Field(primary_key=True)  # UUID of a GPU, name of a CPU slot
    reason: str  # "": in use again
    at: float
    by: str | None = None  # name of the person; None: rekindle itself
    acknowledged: list[str] = Field(default_factory=list, sa_type=JSON)  # faults that it had when it was enabled


class Experiment(SQLModel, table=True):
    """A set of jobs that differ in their parameters, and what is to be compared of them."""

    id: str = Field(primary_key=True)
    number: int = Field(default=0, unique=True)  # 1, 2, 3 … in the order of submission
    idempotency_key: str | None = Field(default=None, unique=True)
    request_digest: str | None = None  # SHA-256 of the request with this key
    owner: str | None = Field(default=None, index=True)  # name of the person who submitted it
    name: str
    title: str
    command: str | None = None  # that started it; None for one from elsewhere
    definition: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)  # the request, without values of ``env``
    machine: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)  # of ``hardware.describe`` at submission
    notes: list[str] = Field(default_factory=list, sa_type=JSON)  # what was left out, and why
    created_at: float


Row = TypeVar("Row", Job, Experiment)


class Attempt(SQLModel, table=True):
    """One launch of torchrun, as the keeper's journal records it. See ``attempt_rows`` and ``AttemptSummary``."""

    job_id: str = Field(primary_key=True, foreign_key="job.id", ondelete="CASCADE")
    number: int = Field(primary_key=True)
    run: int
    started_at: float
    ranks_running_at: float | None = None
    ended_at: float | None = None
    outcome: dict[str, Any] | None = Field(default=None, sa_type=JSON)
    resumed_from_step: int | None = None
    resumed_from_path: str | None = None
    last_step: int | None = None
    snapshot_step: int | None = None
    saving_seconds: float | None = None
    stalls: list[list[float]] = Field(default_factory=list, sa_type=JSON)
    world_size: int = 0
    devices: list[str] = Field(default_factory=list, sa_type=JSON)
    next_try_at: float | None = None
    reason: str | None = None
    faults: list[dict[str, Any]] = Field(default_factory=list, sa_type=JSON)
    detail: dict[str, Any] = Field(default_factory=dict, sa_type=JSON)  # what else ``AttemptInfo`` has


class Event(SQLModel, table=True):
    """One thing that happened to a job. Outlives the job: a ``deleted`` event is its tombstone."""

    id: int = Field(primary_key=True)  # from the same counter as ``Job.version``
    job_id: str = Field(index=True)
    at: float
    kind: str = Field(index=True)  # docs/reference/events.md lists them
    from_state: str | None = None
    to_state: str | None = None
    reason: str = ""
    owner: str | None = None  # of a deleted job, whose row no longer says it


class Counter(SQLModel, table=True):
    """The last value of each counter (``number``, ``version``, ``experiment``).

    Names with a colon: the totals of all jobs, the counts of deleted ones, and the last event that was delivered to
    each channel.
    """

    name: str = Field(primary_key=True)
    value: int


class AccessToken(SQLModel, table=True):
    """A token of one person. The token itself is shown once and never stored."""

    __tablename__ = "access_token"

    id: str = Field(primary_key=True)
    digest: str = Field(unique=True)  # SHA-256 of the token, in hexadecimal
    person: str = Field(index=True)
    scope: str  # of ``access.permissions.Scope``
    note: str = ""
    created_by: str
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None
    last_used_at: float | None = None  # within some minutes


class BrowserSession(SQLModel, table=True):
    """A browser that has signed in. It ends with its token."""

    __tablename__ = "browser_session"

    digest: str = Field(primary_key=True)  # SHA-256 of the cookie's value, in hexadecimal
    token_digest: str = Field(index=True)
    created_at: float
    expires_at: float
    address: str = ""


class BundleUpload(SQLModel, table=True):
    """Who has uploaded a bundle; the same archive may be uploaded by several people."""

    __tablename__ = "bundle_upload"

    bundle_id: str = Field(primary_key=True)
    person: str = Field(primary_key=True)
    at: float


class AuditEntry(SQLModel, table=True):
    """One request that changed something or was refused. A row is never changed, and removed only when it is old."""

    __tablename__ = "audit"

    id: int | None = Field(default=None, primary_key=True)
    at: float = Field(index=True)
    person: str | None = Field(default=None, index=True)  # None: not known
    token_id: str | None = None  # None: the home's token, or a user of this machine
    via: str  # "token", "browser", "socket" or "none"
    address: str = ""  # of the client
    action: str  # method and path of the route, as in "POST /api/v1/jobs/{job_id}/cancel"
    target: str = ""  # the path that was requested
    status: int  # of the response
    detail: str = ""
