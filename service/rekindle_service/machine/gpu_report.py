"""What the driver reports of the GPUs, through a process that the server never waits for: users, faults, readings."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import IO, Any

from rekindle.contract.cores import kernel_bus_id
from rekindle.contract.nvidia_driver import XIDS, GpuReading
from rekindle_service.machine.health import DeviceUser
from rekindle_service.machine.slots import Slot

MAX_MEMORY_IN_USE = 0.05
"""Share of its memory that a GPU may use for the driver and a screen without counting as in use."""

INTERVAL = 2.0  # seconds between two reports
TIMEOUT = 30.0
"""Seconds without a report after which the driver does not answer."""

STARTING = "the driver was not yet asked who uses it"

_RESTART = 10.0  # seconds between two starts of the process
_SHARED = ("nvidia-cuda-mps",)  # names of processes that belong to nobody in particular
_GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU; memory is in bytes, and None is what the driver does not report."""

    lost: str | None = None
    used: int | None = None
    total: int | None = None
    processes: list[tuple[int, int | None]] = field(default_factory=list)  # pid, bytes
    memory_errors: int | None = None  # that could not be corrected, since the driver was loaded
    remap_failed: bool = False


@dataclass(frozen=True, slots=True)
class GpuReport:
    """All GPUs, by UUID; ``xids`` have the UUID or bus id of a GPU, and happened since the report before."""

    gpus: dict[str, GpuState]
    xids: list[tuple[str, int]] = field(default_factory=list)
    readings: dict[str, GpuReading] = field(default_factory=dict)  # by UUID; a GPU that is lost has none

    @classmethod
    def from_json(cls, data: Any) -> "GpuReport":
        """Raises TypeError, KeyError or ValueError for what ``gpu_probe`` does not print."""
        gpus = {uuid: GpuState(**state) for uuid, state in data["gpus"].items()}
        readings = {uuid: GpuReading(**reading) for uuid, reading in data.get("readings", {}).items()}
        return cls(gpus, [(str(gpu), int(number)) for gpu, number in data["xids"]], readings)


def foreign_users(
    gpu: GpuState, describe: Callable[[int], DeviceUser | None], *, held: bool
) -> tuple[list[DeviceUser], list[DeviceUser]]:
    """Processes of no job: those that are certainly not ours, and those of which this machine shows nothing.

    ``describe`` gives None for a process of a job. On a GPU that a job holds, a process that is not shown here (in a
    container it may have another pid) is taken for that job's.
    """
    found = [(user, used) for pid, used in gpu.processes if (user := describe(pid)) is not None]
    users = [DeviceUser(user.pid, user.name, user.user, used) for user, used in found]
    users = [user for user in users if not (user.name or "").startswith(_SHARED)]
    known = [user for user in users if user.name is not None]
    return known, [] if held else [user for user in users if user.name is None]


def lacks_memory(gpu: GpuState) -> bool:
    """Whether more is in use than a driver needs."""
    return bool(gpu.used and gpu.total and gpu.used > MAX_MEMORY_IN_USE * gpu.total)


def in_use_reason(gpu: GpuState, users: Collection[DeviceUser]) -> str:
    """``process 4242 (python of ann) uses 70 GiB of it``. Memory is rounded, so that the sentence seldom changes."""
    if not users:
        used, total = (gpu.used or 0) / _GIB, (gpu.total or 0) / _GIB
        return f"{used:.0f} of its {total:.0f} GiB are in use by processes that the driver does not name"
    largest = max(users, key=lambda user: user.memory_bytes or 0)
    names = " of ".join(name for name in (largest.name, largest.user) if name)
    name = f"process {largest.pid}" + (f" ({names})" if names else ", which is not visible here,")
    uses = "uses it" if largest.memory_bytes is None else f"uses {_gib(largest.memory_bytes)} of it"
    others = "" if len(users) == 1 else f", and {len(users) - 1} other process{'' if len(users) == 2 else 'es'} too"
    return f"{name} {uses}{others}"


def _gib(size: int) -> str:
    return f"{size / _GIB:.0f} GiB" if size >= _GIB else "less than 1 GiB"


def lasting_faults(gpu: GpuState) -> list[str]:
    """What is wrong with the GPU now, and will be in the next report."""
    faults = []
    if gpu.lost is not None:
        faults.append(f"the driver has lost this GPU ({gpu.lost})")
    if gpu.remap_failed:
        faults.append("a damaged row of its memory could not be replaced (row remapping failed)")
    if gpu.memory_errors:
        faults.append(f"{gpu.memory_errors} memory errors that could not be corrected (ECC) since the driver's start")
    return faults


def xid_faults(xids: Iterable[tuple[str, int]], slots: Collection[Slot]) -> Mapping[str, str]:
    """What has happened to GPUs, by slot name."""
    happened: dict[str, str] = {}
    for gpu, number in xids:
        for slot in slots if number in XIDS else ():  # a bus id is that of all instances of a GPU that MIG divides
            if gpu == slot.uuid or (slot.bus_id and normal_bus_id(gpu) == normal_bus_id(slot.bus_id)):
                happened[slot.name] = f"Xid {number}: {XIDS[number]}"
    return happened


def normal_bus_id(bus_id: str | None) -> str | None:
    """``0000:3b:00`` of ``00000000:3B:00.0``, as the kernel's log names it, too."""
    return None if bus_id is None else kernel_bus_id(bus_id).partition(".")[0]


class GpuProbe:
    """Call ``poll`` again and again, from one thread, which the process ends with."""

    def __init__(self, uuids: list[str], interval: float = INTERVAL, timeout: float = TIMEOUT) -> None:
        self._uuids, self._interval, self._timeout = uuids, interval, timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._started = float("-inf")  # seconds of CLOCK_MONOTONIC
        self._lock = threading.Lock()
        self._report: GpuReport | None = None
        self._reported = 0.0  # likewise
        self._xids: list[tuple[str, int]] = []
        self._problem = STARTING

    def watch(self, uuids: list[str]) -> None:
        """Ask for these GPUs from now on."""
        self._uuids = uuids
        if self._process is not None:
            self._process.kill()  # another one starts at the next poll

    def poll(self) -> GpuReport | str:
        """The latest report, with all Xids since the last call, or a sentence that says why there is none."""
        now = time.monotonic()
        with self._lock:
            report, age = self._report, now - self._reported
            xids, self._xids = self._xids, []
        if self._process is None or self._process.poll() is not None:
            self._restart(now)
            if report is None or age > 2 * _RESTART:
                return self._problem
        elif report is None and now - self._started < self._timeout:
            return self._problem
        elif report is None or age > self._timeout:
            return f"the driver has not answered for {self._timeout:.0f} seconds"
        return replace(report, xids=xids) if report is not None else self._problem

    def readings(self) -> dict[str, GpuReading]:
        """By UUID, what is in use of each GPU; nothing where the driver does not answer. Any thread may call it."""
        with self._lock:
            is_known = self._report is not None and time.monotonic() - self._reported < self._timeout
            return self._report.readings if self._report is not None and is_known else {}

    def close(self) -> None:
        """A process that waits for a driver cannot be killed: it ends when that answers."""
        if self._process is not None:
            self._process.kill()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)

    def _restart(self, now: float) -> None:
        if now - self._started < _RESTART:
            return
        self._started = now
        command = [sys.executable, "-P", "-m", f"{__package__}.gpu_probe", str(self._interval), *self._uuids]
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        except OSError as error:
            self._problem = f"the driver cannot be asked: {error}"
            return
        reader = threading.Thread(target=self._read, args=(self._process.stdout,), name="gpu reports", daemon=True)
        reader.start()

    def _read(self, lines: IO[bytes]) -> None:
        """Reports, and last, where the process could not continue, why."""
        with lines:
            for line in lines:
                try:
                    report = GpuReport.from_json(json.loads(line))
                except (ValueError, TypeError, KeyError):
                    self._problem = f"the driver answers with an error: {line.decode(errors='replace').strip()}"
                    continue
                with self._lock:
                    self._report, self._reported = report, time.monotonic()
                    self._xids += report.xids
