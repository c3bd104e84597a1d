"""What this machine is, and its usage: sampled every few seconds and kept, more and more coarsely, in memory."""

import os
import platform
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

import psutil

from rekindle.contract import __version__
from rekindle.contract.field_texts import Described
from rekindle.contract.nvidia_driver import GpuReading
from rekindle_service.machine.slots import Machine
from rekindle_service.periodic_thread import PeriodicThread

T = TypeVar("T")

SAMPLE_INTERVAL = 5.0  # seconds
MAX_SAMPLES = 1440
"""Two hours of samples; after that the older ones are further and further apart."""

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 only its free space is read


@dataclass(frozen=True, slots=True)
class Space(Described):
    """Room in a file system, in bytes."""

    free_bytes: int
    """Free bytes."""
    total_bytes: int
    """Bytes in total."""


@dataclass(frozen=True, slots=True)
class MonitorSample:
    """One sample. Percentages are of all cores that this server may use; memory is that of the whole machine."""

    at: float  # seconds since the epoch
    cpu_percent: float | None  # since the sample before; None for the first one
    memory_used_bytes: int
    memory_total_bytes: int
    home: Space
    shared_memory: Space | None  # None on a machine without any
    gpus: dict[str, GpuReading]  # by slot name


class MachineMonitor:
    """The samples so far, the first taken at construction. ``start`` starts a thread that takes the others."""

    def __init__(self, machine: Machine, home: Path, readings: Callable[[], Mapping[str, GpuReading]] = dict) -> None:
        """``readings``: of GPUs, by UUID; it must not wait for the driver."""
        self._machine, self._home, self._readings = machine, home, readings
        self._cores = sorted(os.sched_getaffinity(0))
        self._busy, self._idle = self._processor_times()
        self._samples: list[MonitorSample] = [self._take(first=True)]
        self._lock = threading.Lock()
        self._thread = PeriodicThread("machine", self.sample, SAMPLE_INTERVAL, "The machine could not be sampled")

    @property
    def cores(self) -> int:
        return len(self._cores)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._thread.close()

    def history(self) -> list[MonitorSample]:
        """At least one, oldest first; the last is at most ``SAMPLE_INTERVAL`` seconds old while the thread runs."""
        with self._lock:
            return list(self._samples)

    def sample(self) -> None:
        """Take a sample now. One thread at a time."""
        sample = self._take()
        with self._lock:
            self._samples = downsample([*self._samples, sample])

    def _take(self, *, first: bool = False) -> MonitorSample:
        memory = psutil.virtual_memory()
        return MonitorSample(
            at=time.time(),
            cpu_percent=None if first else self._cpu_percent(),
            memory_used_bytes=memory.total - memory.available,
            memory_total_bytes=memory.total,
            home=_space(self._home),
            shared_memory=_shared_memory(),
            gpus=self._read_gpus(),
        )

    def _read_gpus(self) -> dict[str, GpuReading]:
        """By slot name."""
        readings = self._readings()
        found = ((slot.name, readings.get(slot.uuid or "")) for slot in self._machine.slots)
        return {name: reading for name, reading in found if reading is not None}

    def _cpu_percent(self) -> float | None:
        """None where the clock of the processors has not moved since the last sample."""
        busy, idle = self._processor_times()
        gone = (busy - self._busy) + (idle - self._idle)
        percent = None if gone <= 0 else round(100 * max(0.0, busy - self._busy) / gone, 1)
        self._busy, self._idle = busy, idle
        return percent

    def _processor_times(self) -> tuple[float, float]:
        """Seconds that the cores of this server were busy and idle since boot; guests' time is in the user's."""
        every = psutil.cpu_times(percpu=True)
        times = [every[core] for core in self._cores if core < len(every)]
        idle = sum(each.idle + each.iowait for each in times)
        return sum(sum(each) - each.guest - each.guest_nice for each in times) - idle, idle


def downsample(samples: list[MonitorSample]) -> list[MonitorSample]:
    """Every second one where there are too many: old samples stay, at greater and greater distances."""
    return samples if len(samples) <= MAX_SAMPLES else [*samples[:-1:2], samples[-1]]


def evenly_spaced(samples: list[T], maximum: int) -> list[T]:
    """Choose up to ``maximum`` of ``samples``, evenly spaced, always with the last."""
    step = max(1, -(-len(samples) // maximum))
    return samples[::-1][::step][::-1]


def _space(directory: Path) -> Space:
    usage = shutil.disk_usage(directory)
    return Space(usage.free, usage.total)


def _shared_memory() -> Space | None:
    with suppress(OSError):
        return _space(_SHARED_MEMORY)
    return None


def describe_machine(machine: Machine) -> dict[str, Any]:
    """Processor, cores, memory (bytes), GPUs, versions, and the load now: mean of runnable processes over 1 minute.

    ``torch`` is that of the server's environment; a job with a Python of its own may have another.
    """
    return {
        "host": platform.node(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": psutil.virtual_memory().total,
        "gpus": [slot.model or slot.name for slot in machine.slots if slot.device == "cuda"],
        "cpu_slots": machine.count("cpu"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": _version("torch"),
        "rekindle": __version__,
        "load": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
