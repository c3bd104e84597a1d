"""What a keeper samples of an attempt every few seconds: what ranks and GPUs do and use, and how the logs grow."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

from rekindle.contract.job_options import MAX_RANKS
from rekindle.contract.nvidia_driver import GpuReading
from rekindle.contract.run_dir.json_records import Amount, Count, JsonRecord, Line
from rekindle.contract.run_dir.paths import STREAMS

_MAX_SIZE = 1 << 53  # bytes
_MAX_TIME = 1e11  # seconds


@dataclass(frozen=True, slots=True)
class RankUsage:
    """A rank with the processes that it has started, such as its data loaders."""

    rank: Count
    cpu_percent: Amount | None  # 100 is one core; None in the first sample
    rss_bytes: Count  # pages that processes share count for each
    read_bytes: Count  # from disks, since the rank began
    written_bytes: Count
    phase: Line | None = None  # as the script reports it, like ``step``: the longest one since the last sample
    step: int | None = None
    waiting: Amount | None = None  # share of the time since the last sample, 0 to 1, in which it waited for other ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuUsage(GpuReading):
    """A whole GPU of a job, whoever uses it."""

    index: Count
    """Index among the GPUs of the job, in the order of its ranks."""


@dataclass(frozen=True, slots=True)
class UsageSample(JsonRecord):
    """One line of ``AttemptDir.usage``."""

    keys: ClassVar = {"hang_after": "hang_timeout"}
    at: Amount  # seconds since the epoch
    ranks: list[RankUsage]
    devices: list[GpuUsage]
    hang_after: Amount | None = None  # seconds without progress that its keeper does not take for a hang yet
    without_progress: Amount | None = None  # seconds since its keeper has observed progress of any rank

    @property
    def progress(self) -> dict[str, Any]:
        """What it says of the progress of the job, with the keys of a rank's JSON."""
        return {"hang_timeout": self.hang_after, "without_progress": self.without_progress}

    def of_rank(self, rank: int) -> RankUsage | None:
        return next((usage for usage in self.ranks if usage.rank == rank), None)

    def devices_of(self, rank: int, devices_per_rank: int) -> list[GpuUsage]:
        """The GPUs of a rank, in the order of the ranks; none where the job runs on CPUs."""
        return [device for device in self.devices if device.index // devices_per_rank == rank]


def most_common_phase(phases: Sequence[str | None]) -> str | None:
    """The most frequent phase, the latest one of several: a short one between two samples hides no other."""
    counts = Counter(phases)
    return max(reversed(phases), key=counts.__getitem__, default=None)


class LogName(NamedTuple):
    """One log of an attempt; the order is that in which logs are shown that grew at the same time."""

    rank: int
    stream: str


@dataclass(frozen=True, slots=True)
class LogSizes:
    """One line of ``AttemptDir.log_times``: the logs that have grown since the line before.

    A byte came at the time of the first line in which its log is larger than the byte's offset. The order of the lines
    is that of the events, also where the clock was set back between two of them.
    """

    at: float  # seconds since the epoch
    sizes: Mapping[LogName, int]  # bytes

    def to_json(self) -> dict[str, Any]:
        """Short, since it is written several times a second: ``{"at": 1.25, "logs": [[rank, stream, bytes], …]}``."""
        logs = [[name.rank, STREAMS.index(name.stream), size] for name, size in sorted(self.sizes.items())]
        return {"at": round(self.at, 3), "logs": logs}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Self:
        """Read what ``to_json`` makes. Raises ValueError for anything else."""
        at, logs = value.get("at"), value.get("logs")
        if not isinstance(at, int | float) or not 0 <= at < _MAX_TIME or not isinstance(logs, list):
            raise ValueError("at must be a time, logs a list")
        return cls(float(at), dict(_size(log) for log in logs))


def _size(log: Any) -> tuple[LogName, int]:
    match log:
        case [int(rank), int(stream), int(size)] if (
            0 <= rank < MAX_RANKS and 0 <= stream < len(STREAMS) and 0 <= size <= _MAX_SIZE
        ):
            return LogName(rank, STREAMS[stream]), size
    raise ValueError(f"{str(log)[:100]} must be [rank, stream, bytes]")


def valid_sizes(lines: Iterable[tuple[int, dict[str, Any]]]) -> Iterator[LogSizes]:
    """Read the records out of JSON lines; lines that are not the keeper's are skipped."""
    for _, line in lines:
        with suppress(ValueError):
            yield LogSizes.from_json(line)
