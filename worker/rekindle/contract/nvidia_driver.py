"""What NVIDIA's driver reports: what GPUs use, by its own library (NVML) through ctypes, and its messages by number.

Keeper and server read usage here. Which GPUs, links and processes there are, only the server asks, by nvidia-ml-py: a
job's interpreter need have nothing but torch. NVML makes no CUDA context. It is closed after each reading or wait:
nothing of it is open when the keeper forks.
"""

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from rekindle.contract.cores import kernel_bus_id
from rekindle.contract.field_texts import Described
from rekindle.contract.run_dir.json_records import Amount, Count

LIBRARY = "libnvidia-ml.so.1"
_CORE_SENSOR = 0  # NVML_TEMPERATURE_GPU
_Memory = ctypes.c_ulonglong * 3  # nvmlMemory_t, in bytes: total, free, used
_MAX_PROCESSES = 1024
_Utilization = ctypes.c_uint * 2  # nvmlUtilization_t, in percent of the driver's last sampling period: GPU, memory

XIDS = {  # messages by number, as the catalogue of Xids of Ampere and newer GPUs has them
    48: "a memory error that cannot be corrected",
    62: "its own controller has stopped",
    64: "a damaged row of its memory could not be replaced",
    74: "an error of NVLink",
    79: "the GPU has fallen off the bus",
    95: "a memory error that was not contained",
    110: "a fault of its security controller",
    119: "its system processor does not respond",
    120: "an error of its system processor",
    140: "a memory error that cannot be corrected",
    143: "it could not be initialised",
    145: "an error of NVLink",
    149: "an error of NVLink",
}
"""After these a GPU needs a reset or a repair; the others concern one job."""

HARDWARE_XIDS = XIDS.keys() | {94, 136, 154}
"""Also a memory error that was contained, a link that was not trained, and that a reset is needed: the hardware failed.

Not 63, which records that a row will be replaced, and not 92 and 121, which count errors that were corrected.
"""


class _Process(ctypes.Structure):
    """nvmlProcessInfo_t of driver 450 and later."""

    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used_memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


class _PciInfo(ctypes.Structure):
    """nvmlPciInfo_t of driver 410 and later."""

    _fields_ = (("legacy", ctypes.c_char * 16), ("numbers", ctypes.c_uint * 5), ("bus_id", ctypes.c_char * 32))


@dataclass(frozen=True, slots=True)
class GpuReading(Described):
    """One sample of a whole GPU, whoever uses it. What its driver does not report is None: MIG has no utilization."""

    utilization_percent: Count | None = None
    """Time in which the GPU computed, in percent, 0 to 100; null where not known."""
    memory_used_bytes: Count | None = None
    """Used memory in bytes; null where not known."""
    memory_total_bytes: Count | None = None
    """Memory in bytes; null where not known."""
    temperature_celsius: Count | None = None
    """Temperature in degrees Celsius; null where not known."""
    power_watts: Amount | None = None
    """Power in watts; null where not known."""


class Driver:
    """NVML, open from ``with`` on. Answers are None for a lost GPU, without a driver, and where it does not answer."""

    def __init__(self, library: str = LIBRARY) -> None:
        self._library, self._nvml = library, None

    def __enter__(self) -> Self:
        with suppress(OSError):
            nvml: Any = ctypes.CDLL(self._library)
            self._nvml = nvml if nvml.nvmlInit_v2() == 0 else None
        return self

    def __exit__(self, *_: object) -> None:
        if self._nvml is not None:
            self._nvml.nvmlShutdown()

    def read(self, devices: Sequence[str]) -> list[GpuReading | None]:
        """A sample of each of ``devices`` (UUIDs or indices, as in CUDA_VISIBLE_DEVICES)."""
        return [None if (gpu := self._find(device)) is None else _read(self._nvml, gpu) for device in devices]

    def processes(self, devices: Sequence[str]) -> set[int] | None:
        """Pids of the processes that compute on ``devices``; None where that is not known."""
        found = set[int]()
        for device in devices:
            gpu, count, listed = self._find(device), ctypes.c_uint(_MAX_PROCESSES), (_Process * _MAX_PROCESSES)()
            if (
                gpu is None
                or _ask(self._nvml, "nvmlDeviceGetComputeRunningProcesses_v3", gpu, count, answer=listed) is None
            ):
                return None
            found |= {process.pid for process in listed[: count.value]}
        return found

    def bus_ids(self, devices: Sequence[str]) -> set[str] | None:
        """Bus ids of ``devices``, as in the kernel's log (``0000:3b:00``); None unless all are known."""
        found = set[str]()
        for device in devices:
            gpu, answer = self._find(device), _PciInfo()
            if gpu is None or _ask(self._nvml, "nvmlDeviceGetPciInfo_v3", gpu, answer=answer) is None:
                return None
            found.add(kernel_bus_id(answer.bus_id.decode(errors="replace")).partition(".")[0])
        return found

    def _find(self, device: str) -> ctypes.c_void_p | None:
        if self._nvml is None:
            return None
        gpu, by_index = ctypes.c_void_p(), device.isdecimal()
        find = self._nvml.nvmlDeviceGetHandleByIndex_v2 if by_index else self._nvml.nvmlDeviceGetHandleByUUID
        name = ctypes.c_uint(int(device)) if by_index else device.encode()
        return gpu if find(name, ctypes.byref(gpu)) == 0 else None


def read_gpus(devices: Sequence[str], library: str = LIBRARY) -> list[GpuReading | None]:
    """A sample of each of ``devices``, as ``Driver.read`` takes it."""
    if not devices:
        return []
    with Driver(library) as driver:
        return driver.read(devices)


def _read(nvml: Any, gpu: ctypes.c_void_p) -> GpuReading:
    utilization, _ = _ask(nvml, "nvmlDeviceGetUtilizationRates", gpu, answer=_Utilization()) or (None, None)
    total, _, used = _ask(nvml, "nvmlDeviceGetMemoryInfo", gpu, answer=_Memory()) or (None, None, None)
    degrees = _ask(nvml, "nvmlDeviceGetTemperature", gpu, _CORE_SENSOR, answer=ctypes.c_uint())
    milliwatts = _ask(nvml, "nvmlDeviceGetPowerUsage", gpu, answer=ctypes.c_uint())
    return GpuReading(
        utilization_percent=utilization,
        memory_used_bytes=used,
        memory_total_bytes=total,
        temperature_celsius=None if degrees is None else degrees.value,
        power_watts=None if milliwatts is None else milliwatts.value / 1000,
    )


def _ask(nvml: Any, name: str, *arguments: Any, answer: Any) -> Any:
    """Have the driver fill in ``answer``; None where this GPU, or this driver, does not support the call."""
    with suppress(AttributeError):  # an older driver has no such function
        passed = [ctypes.byref(each) if isinstance(each, ctypes.c_uint) else each for each in arguments]
        return answer if getattr(nvml, name)(*passed, ctypes.byref(answer)) == 0 else None
    return None
