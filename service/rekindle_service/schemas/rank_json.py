"""JSON of ranks: their state, resource usage, metrics, logs and stacks."""

from dataclasses import dataclass

from pydantic import RootModel

from rekindle.contract.run_dir.attempt_samples import GpuUsage
from rekindle.contract.run_dir.digest_records import LayerRecord
from rekindle_service.experiments.comparison import Goal
from rekindle_service.run_readers.log_search import Match
from rekindle_service.run_readers.merged_log import TimedLine
from rekindle_service.run_readers.rank_rows import RankRow
from rekindle_service.schemas.fields import ApiModel, MetricPoint, Page, Timestamp


class UsagePublic(ApiModel):
    """Resources that a rank and its child processes use."""

    at: Timestamp
    """When the sample was taken."""
    cpu_percent: float | None
    """Use of the processor in percent; 100 is one core. Null in the first sample."""
    rss_bytes: int
    """Resident memory in bytes; pages that processes share count for each."""
    read_bytes: int
    """Bytes read from disks since the rank started."""
    written_bytes: int
    """Bytes written to disks since the rank started."""
    devices: list[GpuUsage]
    """GPUs of the rank."""


class UsageSeries(ApiModel):
    """Resource usage of one rank over time."""

    attempt: int
    """Number of the attempt."""
    rank: int
    """Global rank."""
    points: list[UsagePublic]
    """Samples, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPublic(RankRow):
    """One rank of one attempt. Null is what is not known or does not apply."""

    usage: UsagePublic | None = None
    """Resources that the rank uses now; null where it does not run."""
    hang_timeout: float | None = None
    """Seconds without progress after which the keeper takes the job for hung, as learned from its steps; null where
    not known yet."""
    without_progress: float | None = None
    """Seconds for which the keeper, when it looked last, had observed no progress of any rank: a step, or without steps
    a collective, output or computation; null where not known."""


class LayersPublic(ApiModel):
    """What one rank has computed in one step, in that order."""

    attempt: int
    """Number of the attempt."""
    rank: int
    """Global rank."""
    step: int
    """Optimizer step that was recorded."""
    samples: list[int]
    """Indices of the samples of its batch in the data set."""
    tensors: list[LayerRecord]
    """Batch, outputs of the layers, gradients and parameters."""


class StackPublic(ApiModel):
    """Python stacks of all threads of a rank."""

    attempt: int
    """Number of the attempt."""
    rank: int
    """Global rank."""
    stack: str
    """The stacks as text, as `faulthandler` writes them."""


class RankMatches(ApiModel):
    """A log with matches, or one that was searched only in part."""

    attempt: int
    """Number of the attempt."""
    rank: int
    """Global rank."""
    stream: str
    """`stdout` or `stderr`."""
    count: int
    """Number of matches, at most 100."""
    complete: bool
    """False where the log was searched only in part."""
    first: Match | None
    """First match; null where none was found."""


class AttemptMatches(ApiModel):
    """How often an attempt's logs have a match."""

    attempt: int
    """Number of the attempt."""
    count: int
    """Number of matches in its logs, of each log at most 100."""
    complete: bool
    """False where its logs were searched only in part."""


class LogMatches(Page[RankMatches]):
    """Logs with matches, latest attempt first."""

    attempts: list[AttemptMatches]
    """All attempts that were to be searched, latest first, those without a match too."""


class MetricSeries(ApiModel):
    """A metric of one attempt."""

    attempt: int
    """Number of the attempt."""
    name: str
    """Name of the metric."""
    points: list[MetricPoint]
    """Points: step, epoch (or null), seconds since the epoch, value (null where not finite)."""


class PrintedPlace(ApiModel):
    """A line of a log."""

    attempt: int
    """Number of the attempt."""
    rank: int
    """Rank that printed it."""
    stream: str
    """`stdout` or `stderr`."""
    offset: int
    """Byte of the log at which it begins."""


class MetricName(ApiModel):
    """A metric that a job has logged."""

    name: str
    """Name of the metric."""
    step: int
    """Step of its latest value."""
    epoch: int | None
    """Epoch of its latest value; the same number as the step where the script prints epochs and no steps."""
    value: float | None
    """Latest value; null where not finite."""
    goal: Goal | None
    """`min` or `max`: whether low or high values are better, as its name suggests; null where it does not."""
    printed: PrintedPlace | None
    """Line of the output with its latest value; null for a metric that the script reports."""


class LogLines(ApiModel):
    """Lines of several logs of an attempt, in the order in which they were written."""

    attempt: int
    """Number of the attempt."""
    items: list[TimedLine]
    """Lines in order."""
    next: str | None
    """Cursor for `after`: the lines that follow; null where nothing was read."""
    previous: str | None
    """Cursor for `before`: the lines before these; null where nothing was read."""
    complete: bool
    """Whether nothing more follows in the direction of reading, at present."""
    ended: bool
    """Whether the attempt has ended, so that nothing more will be written."""
    has_times: bool
    """False where nobody has recorded when the lines were written: they are in the order of ranks and streams."""
    unfinished: list[TimedLine]
    """Last line of each log that has no line break yet, as far as it was written; only where `complete` is true."""


class LogTime(RootModel[tuple[int, float]]):  # readers of OpenAPI such as schemathesis misread a pair in ``items``
    """Offset of a byte, and seconds since the epoch."""


class LogTimesPublic(ApiModel):
    """When the bytes of one log were written."""

    attempt: int
    """Number of the attempt."""
    rank: int
    """Global rank."""
    stream: str
    """`stdout` or `stderr`."""
    items: list[LogTime]
    """Pairs of an offset and seconds since the epoch: the bytes from the offset before up to this one were written
    then. Empty where nobody has recorded it."""
