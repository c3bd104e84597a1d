"""What an attempt's ranks and GPUs use, as its keeper has written it down."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

from pydantic import BaseModel, Field, ValidationError

from rekindle_service.run_readers.safe_open import open_regular

_LONGEST_LINE = 256 * 1024  # bytes: thousands of ranks
_MOST_BYTES = 8 << 20  # of a file that the keeper holds at a fraction of it

Amount = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
Bytes = Annotated[int, Field(ge=0, le=1 << 60)]


class DeviceUsage(BaseModel):
    """A GPU; ``index`` is as the job's ranks count. What its driver does not tell is null."""

    index: Annotated[int, Field(ge=0, le=1 << 20)]
    utilization_percent: Amount | None
    memory_used_bytes: Bytes | None
    memory_total_bytes: Bytes | None
    temperature_celsius: Amount | None
    power_watts: Amount | None


class RankUsage(BaseModel):
    """Of a rank with the processes that it has started; 100 percent are one core."""

    rank: Annotated[int, Field(ge=0, le=1 << 31)]
    cpu_percent: Amount | None
    rss_bytes: Bytes
    read_bytes: Bytes
    written_bytes: Bytes


class UsageSample(BaseModel):
    """One look; ``at`` in seconds since the epoch."""

    at: Amount
    ranks: list[RankUsage]
    devices: list[DeviceUsage]

    def of_rank(self, rank: int) -> RankUsage | None:
        return next((usage for usage in self.ranks if usage.rank == rank), None)

    def devices_of(self, rank: int) -> list[DeviceUsage]:
        """The GPU of a rank: each has one, in the order of the ranks; none where the job runs on CPUs."""
        return [device for device in self.devices if device.index == rank]


def read_usage(root: Path, path: Path) -> Iterator[UsageSample]:
    """Every sample of the file at ``path`` beneath ``root``, oldest first; what is no sample is passed over."""
    file = open_regular(root, path)
    if file is None:
        return
    with file:
        yield from _samples(file, min(os.fstat(file.fileno()).st_size, _MOST_BYTES))


def latest_usage(root: Path, path: Path) -> UsageSample | None:
    """The last sample, read from the end: it is asked for several times a second."""
    file = open_regular(root, path)
    if file is None:
        return None
    with file:
        size = os.fstat(file.fileno()).st_size
        for window in (8 * 1024, _LONGEST_LINE):
            file.seek(max(0, size - window))
            samples = list(_samples(file, window))
            if samples or size <= window:
                break
    return samples[-1] if samples else None


def _samples(file: BinaryIO, most_bytes: int) -> Iterator[UsageSample]:
    while most_bytes > 0 and (line := file.readline(_LONGEST_LINE)):
        most_bytes -= len(line)
        if line.endswith(b"\n"):
            try:
                yield UsageSample.model_validate_json(line)
            except ValidationError:
                continue  # torn by a crash, or not the keeper's
