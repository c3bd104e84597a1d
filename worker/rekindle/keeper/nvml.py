"""The NVIDIA driver's own library (NVML), asked through ctypes.

A job's interpreter need have nothing but torch, so there is no nvidia-ml-py. NVML makes no CUDA context. It is opened
for each question only, so that nothing of it is there when the keeper forks.
"""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

LIBRARY = "libnvidia-ml.so.1"
_CORE_SENSOR = 0  # NVML_TEMPERATURE_GPU


class _MemoryInfo(ctypes.Structure):
    """``nvmlMemory_t``, in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Utilization(ctypes.Structure):
    """``nvmlUtilization_t``, in percent of the time since the driver's last look."""

    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


@dataclass(frozen=True, slots=True)
class Gpu:
    """A device of an open library. Every question gives None, or raises OSError, where the driver does not answer."""

    _nvml: ctypes.CDLL
    _handle: ctypes.c_void_p

    def memory(self) -> tuple[int, int]:
        """Bytes used and in all. Raises OSError."""
        info = _MemoryInfo()
        _check(self._nvml.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(info)))
        return int(info.used), int(info.total)

    def utilization(self) -> int | None:
        """Percent of the time in which a kernel ran."""
        rates = _Utilization()
        code = self._nvml.nvmlDeviceGetUtilizationRates(self._handle, ctypes.byref(rates))
        return int(rates.gpu) if code == 0 else None

    def temperature(self) -> int | None:
        """Degrees Celsius."""
        degrees = ctypes.c_uint()
        code = self._nvml.nvmlDeviceGetTemperature(self._handle, _CORE_SENSOR, ctypes.byref(degrees))
        return degrees.value if code == 0 else None

    def power(self) -> float | None:
        """Watts."""
        milliwatts = ctypes.c_uint()
        code = self._nvml.nvmlDeviceGetPowerUsage(self._handle, ctypes.byref(milliwatts))
        return milliwatts.value / 1000 if code == 0 else None


@contextmanager
def opened(library: str = LIBRARY) -> Iterator[ctypes.CDLL]:
    """The library, ready to be asked. Raises OSError where there is no driver or it does not answer."""
    nvml = ctypes.CDLL(library)
    _check(nvml.nvmlInit_v2())
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def find(nvml: ctypes.CDLL, device: str) -> Gpu:
    """The GPU of this UUID or index, as CUDA_VISIBLE_DEVICES names it. Raises OSError."""
    handle = ctypes.c_void_p()
    if device.isdecimal():
        _check(nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(device)), ctypes.byref(handle)))
    else:
        _check(nvml.nvmlDeviceGetHandleByUUID(device.encode(), ctypes.byref(handle)))
    return Gpu(nvml, handle)


def _check(code: int) -> None:
    """Raises OSError for any answer of NVML but success."""
    if code != 0:
        raise OSError(f"NVML answers {code}")
