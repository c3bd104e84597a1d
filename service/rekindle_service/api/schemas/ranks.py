"""JSON of ranks: their state, resource usage, metrics, logs and stacks."""

from dataclasses import dataclass

from pydantic import BaseModel

from rekindle.contract.run_dir.usage import GpuUsage
from rekindle_service.api.schemas.common import MetricPoint, Timestamp
from rekindle_service.experiments.goals import Goal
from rekindle_service.run_readers.log_search import Match
from rekindle_service.run_readers.ranks import RankRow


class UsagePublic(BaseModel):
    """Resources that a rank and its child processes use.

    `cpu_percent`: 100 is one core, null in the first sample. Bytes read and written are those from and to disks since
    the rank started.
    """

    at: Timestamp
    cpu_percent: float | None
    rss_bytes: int
    read_bytes: int
    written_bytes: int
    devices: list[GpuUsage]


class UsageSeries(BaseModel):
    """Resource usage of one rank over time."""

    attempt: int
    rank: int
    points: list[UsagePublic]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPublic(RankRow):
    """One rank of one attempt.

    `heartbeat_age` is in seconds; `process_state` is the kernel's letter (R, S, D, T …); `straggler` is the share of
    time (0 to 1) that the other ranks wait for this one, null where it is small. `hang_timeout`: seconds without
    progress after which the keeper takes the job for hung, as it learns them from the job; null where not known.
    """

    usage: UsagePublic | None = None
    hang_timeout: float | None = None


class StackPublic(BaseModel):
    """Python stacks of all threads of a rank, as text."""

    attempt: int
    rank: int
    stack: str


class RankMatches(BaseModel):
    """A log with matches, or one that was searched only in part."""

    rank: int
    stream: str
    count: int
    complete: bool
    first: Match | None


class MetricSeries(BaseModel):
    """A metric of one attempt. Points are step, epoch, seconds since the epoch, value (null where not finite)."""

    attempt: int
    name: str
    points: list[MetricPoint]


class MetricName(BaseModel):
    """A metric that a job has logged, with its latest value (null where not finite).

    `goal`: whether low or high values are better, where its name says it.
    """

    name: str
    step: int
    value: float | None
    goal: Goal | None
