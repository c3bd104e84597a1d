"""What the ranks and GPUs of an attempt do and use, sampled by its keeper every few seconds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from rekindle.contract.field_texts import DESCRIBED
from rekindle.contract.run_dir.json_records import Amount, Count, JsonRecord, Line


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


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """A whole GPU, whoever uses it; null where its driver has no value."""

    __pydantic_config__ = DESCRIBED

    index: Count
    """Index among the GPUs of the job, in the order of its ranks."""
    utilization_percent: Amount | None
    """Time in which the GPU computed, in percent, 0 to 100."""
    memory_used_bytes: Count | None
    """Used memory in bytes."""
    memory_total_bytes: Count | None
    """Memory in bytes."""
    temperature_celsius: Amount | None
    """Temperature in degrees Celsius."""
    power_watts: Amount | None
    """Power in watts."""


@dataclass(frozen=True, slots=True)
class UsageSample(JsonRecord):
    """One line of ``AttemptDir.usage``."""

    at: Amount  # seconds since the epoch
    ranks: list[RankUsage]
    devices: list[GpuUsage]
    hang_timeout: Amount | None = None  # seconds without progress that its keeper does not take for a hang yet
    without_progress: Amount | None = None  # seconds since its keeper has observed progress of any rank

    def of_rank(self, rank: int) -> RankUsage | None:
        return next((usage for usage in self.ranks if usage.rank == rank), None)

    def devices_of(self, rank: int, devices_per_rank: int) -> list[GpuUsage]:
        """The GPUs of a rank, in the order of the ranks; none where the job runs on CPUs."""
        return [device for device in self.devices if device.index // devices_per_rank == rank]


def most_common_phase(phases: Sequence[str | None]) -> str | None:
    """The phase that was met most often, of several the latest one: a short one between two samples hides no other."""
    counts = Counter(phases)
    return max(reversed(phases), key=counts.__getitem__, default=None)
