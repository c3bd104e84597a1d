"""What a report of the driver means: who uses a GPU, and which of them have failed. Pure."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rekindle.contract.cores import kernel_bus_id
from rekindle.contract.nvidia_driver import XIDS, GpuReading
from rekindle_service.machine.devices import Slot
from rekindle_service.machine.health import DeviceUser

MAX_MEMORY_IN_USE = 0.05
"""Share of its memory that a GPU may use for the driver and a screen without counting as in use."""

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
    """More is in use than a driver needs."""
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
