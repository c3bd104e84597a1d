"""What GPUs use, as the NVIDIA driver's own library (NVML) reports it, called through ctypes.

Keeper and server read usage here. Which GPUs, links and processes there are, only the server asks, by nvidia-ml-py: a
job's interpreter need have nothing but torch. NVML makes no CUDA context. It is opened for each reading only, so that
nothing of it is loaded when the keeper forks.
"""

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from rekindle.contract.field_texts import DESCRIBED

LIBRARY = "libnvidia-ml.so.1"
_CORE_SENSOR = 0  # NVML_TEMPERATURE_GPU
_Memory = ctypes.c_ulonglong * 3  # nvmlMemory_t, in bytes: total, free, used
_Utilization = ctypes.c_uint * 2  # nvmlUtilization_t, in percent of the driver's last sampling period: GPU, memory


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One sample of a whole GPU, whoever uses it. What its driver does not report is None: MIG has no utilization."""

    __pydantic_config__ = DESCRIBED

    utilization_percent: int | None = None
    """Time in which the GPU computed, in percent, 0 to 100; null where not known."""
    memory_used_bytes: int | None = None
    """Used memory in bytes; null where not known."""
    memory_total_bytes: int | None = None
    """Memory in bytes; null where not known."""
    temperature_celsius: int | None = None
    """Temperature in degrees Celsius; null where not known."""
    power_watts: float | None = None
    """Power in watts; null where not known."""


def read_gpus(devices: Sequence[str], library: str = LIBRARY) -> list[GpuReading | None]:
    """A sample of each of ``devices`` (UUIDs or indices, as in CUDA_VISIBLE_DEVICES); None for one that is lost.

    All are None where there is no driver, or it does not answer.
    """
    readings: list[GpuReading | None] = [None] * len(devices)
    with suppress(OSError):
        if devices and (nvml := ctypes.CDLL(library)).nvmlInit_v2() == 0:
            try:
                readings = [_read(nvml, device) for device in devices]
            finally:
                nvml.nvmlShutdown()
    return readings


def _read(nvml: ctypes.CDLL, device: str) -> GpuReading | None:
    gpu = ctypes.c_void_p()
    by_index = device.isdecimal()
    find = nvml.nvmlDeviceGetHandleByIndex_v2 if by_index else nvml.nvmlDeviceGetHandleByUUID
    if find(ctypes.c_uint(int(device)) if by_index else device.encode(), ctypes.byref(gpu)) != 0:
        return None
    utilization, _ = _ask(nvml.nvmlDeviceGetUtilizationRates, gpu, answer=_Utilization()) or (None, None)
    total, _, used = _ask(nvml.nvmlDeviceGetMemoryInfo, gpu, answer=_Memory()) or (None, None, None)
    degrees = _ask(nvml.nvmlDeviceGetTemperature, gpu, _CORE_SENSOR, answer=ctypes.c_uint())
    milliwatts = _ask(nvml.nvmlDeviceGetPowerUsage, gpu, answer=ctypes.c_uint())
    return GpuReading(
        utilization_percent=utilization,
        memory_used_bytes=used,
        memory_total_bytes=total,
        temperature_celsius=None if degrees is None else degrees.value,
        power_watts=None if milliwatts is None else milliwatts.value / 1000,
    )


def _ask(function: Any, *arguments: Any, answer: Any) -> Any:
    """``answer`` as the driver has filled it in, or None where this GPU does not support the call."""
    return answer if function(*arguments, ctypes.byref(answer)) == 0 else None
