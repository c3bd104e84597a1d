"""What the ranks and GPUs of a job use, and what each rank did over time: a lane of a bounded number of points."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import BinaryIO

from rekindle.contract.field_texts import Described
from rekindle.contract.files import json_lines
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.attempt_samples import GpuUsage, RankUsage, UsageSample, most_common_phase
from rekindle.contract.run_dir.json_records import structure
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import stat_beneath
from rekindle_service.run_readers.log_files import open_or_empty, size_of
from rekindle_service.run_readers.rank_rows import rank_numbers

_MAX_VALUES = 100_000  # of all lanes together: with many ranks, each has fewer points
_MAX_BYTES = 32 << 20  # of samples that one request reads: a few seconds; what is older has no points
_SHORTEST = 0.001  # seconds that attempts have run where a clock was set back
_MAX_PHASES = 40
_PHASE_LENGTH = 60  # characters
_OTHER_PHASE = "other"
_NO_PHASE = "running"  # of a script that reports none
_MAX_LINE = 256 * 1024  # bytes: thousands of ranks
_MAX_FILE_BYTES = 8 << 20  # of a file that the keeper holds at a fraction of it


class RankMeasure(StrEnum):
    """What a rank uses: its processes with those that they have started, and its GPUs."""

    CPU = "cpu"
    MEMORY = "memory"
    GPU = "gpu"
    GPU_MEMORY = "gpu_memory"


@dataclass(frozen=True, slots=True)
class RankLane(Described):
    """One rank of an attempt. Each list has a value for each point of the attempt, null where it is not known."""

    rank: int
    """Global rank."""
    exit: str | None
    """How it failed, such as `exit 1` or `SIGKILL`; null while it runs, and where it ended well or was stopped."""
    ended_at: float | None
    """When it ended, in seconds since the epoch; null while it runs."""
    phase: list[int | None] = field(default_factory=list)
    """Indices in `phases` of the response: the longest phase since the point before; null where it did not run."""
    step: list[int | None] = field(default_factory=list)
    """Completed optimizer steps."""
    waiting: list[float | None] = field(default_factory=list)
    """Fraction of the time in which it waited for other ranks, 0 to 1."""
    use: list[float | None] = field(default_factory=list)
    """Utilization in percent: of its GPUs on average, else of one core."""
    measures: dict[RankMeasure, list[float | None]] = field(default_factory=dict)
    """Values of each requested measure: `cpu` and `gpu` in percent (100 is one core), the others in bytes."""


@dataclass(frozen=True, slots=True)
class LaneTotals(Described):
    """All ranks and GPUs of an attempt together; each list has a value for each of its points."""

    cpu_percent: list[float | None] = field(default_factory=list)
    """Use of the processor in percent; 100 is one core."""
    rss_bytes: list[int] = field(default_factory=list)
    """Resident memory in bytes."""
    gpu_percent: list[float | None] = field(default_factory=list)
    """Mean utilization of the GPUs in percent, 0 to 100."""
    gpu_memory_bytes: list[int | None] = field(default_factory=list)
    """Used memory of the GPUs in bytes."""


@dataclass(frozen=True, slots=True)
class AttemptLanes(Described):
    """The ranks of one attempt. Times are in seconds since the epoch."""

    attempt: int
    """Number of the attempt."""
    started_at: float
    """When it was launched."""
    ranks_running_at: float | None
    """When all ranks had started the script; null before that."""
    ended_at: float | None
    """When it ended; null while it runs."""
    at: list[float]
    """Time of each point, ascending."""
    ranks: list[RankLane]
    """Ranks, each with a value for each point."""
    totals: LaneTotals
    """Sums and means of all ranks and GPUs."""


@dataclass(frozen=True, slots=True)
class Lanes(Described):
    """What the ranks of a job did over time. Times are in seconds since the epoch."""

    begin: float
    """Begin of the range."""
    end: float
    """End of the range."""
    phases: list[str]
    """Names of the phases that occur in it."""
    attempts: list[AttemptLanes]
    """Attempts that ran in the range, oldest first."""
    complete: bool
    """False where samples of earlier attempts were not read, since there are too many."""


def read_lanes(
    run_dir: RunDir,
    attempts: Sequence[AttemptInfo],
    devices_per_rank: int,
    begin: float,
    end: float,
    points: int,
    measures: Sequence[RankMeasure] = (),
) -> Lanes:
    """The lanes of the ``attempts`` (ascending) that ran between ``begin`` and ``end``, in seconds since the epoch.

    The time that they ran has about ``points`` points, fewer where there are many ranks.
    """
    chosen = [each for each in attempts if 0 < each.started_at <= end and (each.ended_at or end) >= begin]
    ranks = max((len(rank_numbers(run_dir, each)) for each in chosen), default=1)
    ran = sum(min(each.ended_at or end, end) - max(each.started_at, begin) for each in chosen)
    width = max(ran, _SHORTEST) / max(1, min(points, _MAX_VALUES // max(ranks, 1)))
    phases = _Phases()
    budget, lanes = _MAX_BYTES, list[AttemptLanes]()
    for attempt in reversed(chosen):
        path = run_dir.attempt(attempt.number).usage
        status = stat_beneath(run_dir.root, path)
        budget -= 0 if status is None else status.st_size
        samples = read_usage(run_dir.root, path, begin, end) if budget >= 0 else iter(())
        buckets = _buckets(samples, begin, width)
        lanes.append(_attempt_lanes(run_dir, attempt, devices_per_rank, buckets, phases, measures))
    return Lanes(begin, end, phases.names, lanes[::-1], complete=budget >= 0)


def _buckets(samples: Iterator[UsageSample], begin: float, width: float) -> list[list[UsageSample]]:
    """Samples that share a point. A clock may have been set back: a point is never earlier than the one before."""
    buckets: list[list[UsageSample]] = []
    last = -1
    for sample in samples:
        index = int((sample.at - begin) / width)
        if index > last:
            buckets.append([])
            last = index
        buckets[-1].append(sample)
    return buckets


def _attempt_lanes(
    run_dir: RunDir,
    attempt: AttemptInfo,
    devices_per_rank: int,
    buckets: list[list[UsageSample]],
    phases: "_Phases",
    measures: Sequence[RankMeasure],
) -> AttemptLanes:
    lanes = {rank: _lane(attempt, rank) for rank in rank_numbers(run_dir, attempt)}
    for lane in lanes.values():
        lane.measures.update({measure: [] for measure in measures})
    totals = LaneTotals()
    for bucket in buckets:
        _add_totals(totals, bucket)
        used, gpus = defaultdict[int, list[RankUsage]](list), defaultdict[int, list[GpuUsage]](list)
        for sample in bucket:
            for usage in sample.ranks:
                used[usage.rank].append(usage)
            for gpu in sample.devices:
                gpus[gpu.index // devices_per_rank].append(gpu)
        for rank, lane in lanes.items():
            _add_point(lane, used[rank], gpus[rank], phases)
    at = [max(sample.at for sample in bucket) for bucket in buckets]
    return AttemptLanes(
        attempt.number, attempt.started_at, attempt.ranks_running_at, attempt.ended_at, at, [*lanes.values()], totals
    )


def _lane(attempt: AttemptInfo, rank: int) -> RankLane:
    exited = attempt.exits.get(rank)
    if exited is None:
        return RankLane(rank, None, None)
    failed = exited.signal or (f"exit {exited.exit_code}" if exited.exit_code else None)
    return RankLane(rank, None if exited.killed else failed, exited.at)


def _add_point(lane: RankLane, used: list[RankUsage], gpus: list[GpuUsage], phases: "_Phases") -> None:
    latest = used[-1] if used else None
    phase = most_common_phase([usage.phase for usage in used]) or _NO_PHASE
    lane.phase.append(None if latest is None else phases.index(phase))
    lane.step.append(None if latest is None else latest.step)
    waiting = _mean([usage.waiting for usage in used])
    lane.waiting.append(None if waiting is None else round(min(waiting, 1.0), 3))
    lane.use.append(_VALUES[RankMeasure.GPU if gpus else RankMeasure.CPU](used, gpus))
    for measure, values in lane.measures.items():
        values.append(_VALUES[measure](used, gpus))


def _add_totals(totals: LaneTotals, bucket: list[UsageSample]) -> None:
    latest = bucket[-1]
    sums = [_sum([usage.cpu_percent for usage in sample.ranks]) for sample in bucket]
    totals.cpu_percent.append(_mean(sums))
    totals.rss_bytes.append(sum(usage.rss_bytes for usage in latest.ranks))
    totals.gpu_percent.append(_mean([gpu.utilization_percent for sample in bucket for gpu in sample.devices]))
    memory = _sum([gpu.memory_used_bytes for gpu in latest.devices])
    totals.gpu_memory_bytes.append(None if memory is None else int(memory))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(fmean(known), 3) if known else None


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


_VALUES: dict[RankMeasure, Callable[[list[RankUsage], list[GpuUsage]], float | None]] = {
    RankMeasure.CPU: lambda used, _: _mean([usage.cpu_percent for usage in used]),
    RankMeasure.MEMORY: lambda used, _: used[-1].rss_bytes if used else None,
    RankMeasure.GPU: lambda _, gpus: _mean([gpu.utilization_percent for gpu in gpus]),
    RankMeasure.GPU_MEMORY: lambda _, gpus: _sum([*{gpu.index: gpu.memory_used_bytes for gpu in gpus}.values()]),
}


class _Phases:
    """The phases that were met, by their index; a script may invent any number of them."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def index(self, phase: str) -> int:
        name = phase[:_PHASE_LENGTH]
        if name not in self.names and len(self.names) >= _MAX_PHASES:
            name = _OTHER_PHASE
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)


def read_usage(root: Path, path: Path, begin: float = 0.0, end: float = math.inf) -> Iterator[UsageSample]:
    """Every sample of the file at ``path`` beneath ``root``, oldest first; lines that are no sample are skipped.

    Only those from ``begin`` to ``end``, in seconds since the epoch.
    """
    with open_or_empty(root, path) as file:
        yield from (sample for sample in _samples(file, 0) if begin <= sample.at <= end)


def latest_usage(root: Path, path: Path) -> UsageSample | None:
    """The last sample, read from the end, since it is needed several times a second."""
    with open_or_empty(root, path) as file:
        size = size_of(file)
        for window in (8 * 1024, _MAX_LINE):
            samples = list(_samples(file, max(0, size - window)))
            if samples or size <= window:
                break
    return samples[-1] if samples else None


def _samples(file: BinaryIO, offset: int) -> Iterator[UsageSample]:
    for end, line in json_lines(file, offset, max_line=_MAX_LINE):
        if end - offset > _MAX_FILE_BYTES:
            return
        try:
            yield structure(UsageSample, line)
        except ValueError:
            continue  # not the keeper's
