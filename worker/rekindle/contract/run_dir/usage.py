"""What the processes and GPUs of an attempt use, as its keeper sees it every few seconds."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RankUsage:
    """A rank with the processes that it has started, such as its data loaders.

    ``cpu_percent``: 100 is one core; None at the first look. ``rss_bytes``: pages that processes share count for each.
    """

    rank: int
    cpu_percent: float | None
    rss_bytes: int
    read_bytes: int  # from disks, since the rank began
    written_bytes: int


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """A whole GPU, whoever uses it; what its driver does not tell is None. ``index`` is as the job's ranks count."""

    index: int
    utilization_percent: int | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    temperature_celsius: int | None
    power_watts: float | None


@dataclass(frozen=True, slots=True)
class UsageSample:
    """One line of ``AttemptDir.usage``."""

    at: float  # seconds since the epoch
    ranks: list[RankUsage] = field(default_factory=list)
    devices: list[GpuUsage] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
