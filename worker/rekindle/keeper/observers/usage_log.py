"""What an attempt uses while it runs, and the GPU memory still held after it. No rank is disturbed by measuring."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple
from pathlib import Path

from rekindle.contract import nvidia_driver
from rekindle.contract.files import append_line, atomic_write
from rekindle.contract.processes import cpu_seconds, descendants, stat_fields
from rekindle.contract.run_dir.attempt_samples import GpuUsage, RankUsage, UsageSample
from rekindle.keeper.attempt_result import RankResult
from rekindle.keeper.hangs.detector import Activity, RankActivity

INTERVAL = 5.0  # seconds
MAX_BYTES = 2 << 20  # of the log. When it has more, every second line is dropped: the older, the coarser
RELEASE_TIMEOUT = 10.0  # seconds; a driver takes longest when it writes a dump of a failed kernel
RELEASE_STEADY = 2.0  # seconds without a byte less, after which the memory is assumed to belong to somebody else
_TOLERANCE = 64 << 20  # bytes that the driver's own bookkeeping may grow by
_PAGE = os.sysconf("SC_PAGE_SIZE")
_RSS = 21  # of ``stat_fields``


def append_sample(path: Path, sample: UsageSample) -> None:
    """Append a sample to the log at ``path``, which stays of bounded size. Raises OSError."""
    append_line(path, sample.to_json(), durable=False)
    if path.stat().st_size > MAX_BYTES:
        lines = path.read_bytes().splitlines(keepends=True)
        atomic_write(path, b"".join(lines[1::2]), durable=False)


class UsageLog:
    """Log of what one attempt uses. No fsync: it means nothing to a resume."""

    def __init__(
        self,
        path: Path,
        gpus: Sequence[str],
        library: str = nvidia_driver.LIBRARY,
        write: Callable[[Path, UsageSample], None] = append_sample,
    ) -> None:
        """``gpus``: the job's on this machine, as in CUDA_VISIBLE_DEVICES."""
        self._path, self._gpus, self._library, self._write = path, gpus, library, write
        self.bus_ids: set[str] | None = None  # of the GPUs, as soon as they are known
        self._next_sample = 0.0  # seconds of CLOCK_MONOTONIC
        self._before: dict[int, tuple[float, float]] = {}  # pid → time of its last sample, its processor seconds then

    def sample_if_due(self, ranks: Iterable[RankResult], take_activity: Callable[[], Activity]) -> None:
        """Append a line about the running ranks. One that cannot be written (a full disk) is a gap, no failure."""
        now = time.monotonic()
        if now < self._next_sample:
            return
        self._next_sample = now + INTERVAL
        running = [rank for rank in ranks if rank.ended_at is None and rank.identity.alive()]
        devices = [
            GpuUsage(*astuple(reading), index=index)
            for index, reading in enumerate(self._read_gpus())
            if reading is not None
        ]
        activity = take_activity()
        used = [self._of_rank(rank, activity.ranks.get(rank.rank)) for rank in running]
        sample = UsageSample(time.time(), used, devices, activity.hang_after, activity.without_progress)
        with suppress(OSError):
            self._write(self._path, sample)

    def _read_gpus(self) -> list[nvidia_driver.GpuReading | None]:
        if not self._gpus:
            return []
        with nvidia_driver.Driver(self._library) as driver:
            if self.bus_ids is None:
                self.bus_ids = driver.bus_ids(self._gpus)
            return driver.read(self._gpus)

    def _of_rank(self, rank: RankResult, does: RankActivity | None) -> RankUsage:
        """Measure the rank's process and everything that it has started."""
        tree = (rank.pid, *descendants(rank.pid))
        cpu, now = sum(cpu_seconds(pid, with_children=True) for pid in tree), time.monotonic()
        sampled_at, cpu_before = self._before.get(rank.pid, (now, cpu))
        self._before[rank.pid] = now, cpu
        percent = round(100 * max(0.0, cpu - cpu_before) / (now - sampled_at), 1) if now > sampled_at else None
        pages = sum(int(fields[_RSS]) for pid in tree if (fields := stat_fields(pid)) is not None)
        read, written = map(sum, zip(*map(_disk_bytes, tree), strict=True))
        activity = () if does is None else astuple(does)
        return RankUsage(rank.rank, percent, pages * _PAGE, read, written, *activity)


class GpuMemory:
    """The memory of some GPUs, measured from what was in use when this was made."""

    def __init__(
        self,
        devices: Sequence[str],
        *,
        shared: bool = False,
        settles: bool = False,
        library: str = nvidia_driver.LIBRARY,
    ) -> None:
        """``devices``: UUIDs or indices, as in CUDA_VISIBLE_DEVICES. Make it while nothing of the job runs.

        ``shared``: other jobs use them as well, so that the memory in use shows nothing of this one. ``settles``:
        processes of the job were killed just now, whose memory the driver may still be releasing.
        """
        self._devices, self._shared, self._library = devices, shared, library
        self._before = {} if shared or not devices else self._measure(settles)

    def wait_released(self, pids: Collection[int]) -> int:
        """Wait until no more is in use than at first: a rank that starts earlier runs out of memory.

        On shared GPUs, until the driver lists none of the job's processes ``pids``. Returns the bytes that are still
        held, 0 where nothing is known. A driver that has become silent is waited for as well.
        """
        if not self._devices or not (self._shared or self._before):
            return 0
        with nvidia_driver.Driver(self._library) as driver:
            held = _wait_settled(lambda: self._held(driver, pids))
        return 0 if held is None or self._shared else held

    def _held(self, driver: nvidia_driver.Driver, pids: Collection[int]) -> int | None:
        """Bytes still held, or on shared GPUs processes; None where the driver does not answer."""
        if self._shared:
            listed = driver.processes(self._devices)
            return None if listed is None else len(listed.intersection(pids))
        used = self._used(driver)
        if not self._before.keys() <= used.keys():
            return None
        more = [used[device] - before for device, before in self._before.items()]
        return sum(each for each in more if each > _TOLERANCE)

    def _measure(self, settles: bool) -> dict[str, int]:
        with nvidia_driver.Driver(self._library) as driver:
            if settles:
                _wait_settled(lambda: sum(self._used(driver).values()) or None)
            return self._used(driver)

    def _used(self, driver: nvidia_driver.Driver) -> dict[str, int]:
        """Bytes in use on each device for which the driver answers."""
        readings = zip(self._devices, driver.read(self._devices), strict=True)
        used = {device: reading.memory_used_bytes for device, reading in readings if reading is not None}
        return {device: size for device, size in used.items() if size is not None}


def _wait_settled(measure: Callable[[], int | None]) -> int | None:
    """Measure until it is 0 or shrinks no more; returns the last value, None where the driver does not answer."""
    began = shrunk_at = time.monotonic()
    value = least = measure()
    while value != 0 and (now := time.monotonic()) < min(began + RELEASE_TIMEOUT, shrunk_at + RELEASE_STEADY):
        if value is not None and (least is None or value < least):
            least, shrunk_at = value, now
        time.sleep(0.05)
        value = measure()
    return value


def _disk_bytes(pid: int) -> tuple[int, int]:
    """Bytes read from and written to disks for ``pid``; zeros where the kernel does not show them."""
    with suppress(OSError, ValueError, KeyError):
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        counters = dict(line.split(": ") for line in lines)
        return int(counters["read_bytes"]), int(counters["write_bytes"])
    return 0, 0
