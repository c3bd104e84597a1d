"""Have the GPUs given back what a job's dead processes held? A rank that starts before that fails for lack of memory.

Asked of the driver's own library (NVML) through ctypes: a job's interpreter need have nothing but torch, and NVML
makes no CUDA context. It is opened for each question only, so that nothing of it is there when the keeper forks.
"""

import ctypes
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

PATIENCE = 10.0  # seconds; a driver takes longest when it writes a dump of a failed kernel
STEADY = 2.0  # seconds without a byte less, after which the memory is taken to be somebody else's
TOLERANCE = 64 << 20  # bytes that the driver's own bookkeeping may grow by
_LOOK_EVERY = 0.05  # seconds
_LIBRARY = "libnvidia-ml.so.1"


class _MemoryInfo(ctypes.Structure):
    """``nvmlMemory_t``, in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class GpuMemory:
    """The memory of some GPUs, measured from what was in use when this was made."""

    def __init__(self, devices: Sequence[str], library: str = _LIBRARY) -> None:
        """``devices``: UUIDs or indices, as in CUDA_VISIBLE_DEVICES. Make it while nothing of the job runs."""
        self._devices, self._library = devices, library
        self._before = self._used()

    def wait_given_back(self) -> int:
        """Wait until no more is in use than at first; the bytes that did not come back, 0 where nothing is told."""
        began = fallen_at = time.monotonic()
        held = least = self._held()
        while held and (now := time.monotonic()) < min(began + PATIENCE, fallen_at + STEADY):
            if held < least:
                least, fallen_at = held, now
            time.sleep(_LOOK_EVERY)
            held = self._held()
        return held

    def _held(self) -> int:
        more = [now - before for now, before in zip(self._used(), self._before, strict=False)]
        return sum(each for each in more if each > TOLERANCE)

    def _used(self) -> list[int]:
        """Bytes in use on each device; nothing where the driver does not answer."""
        if not self._devices:
            return []
        try:
            with _opened(self._library) as nvml:
                return [_used_of(nvml, device) for device in self._devices]
        except OSError:
            return []


@contextmanager
def _opened(library: str) -> Iterator[ctypes.CDLL]:
    nvml = ctypes.CDLL(library)
    _check(nvml.nvmlInit_v2())
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _used_of(nvml: ctypes.CDLL, device: str) -> int:
    handle, info = ctypes.c_void_p(), _MemoryInfo()
    if device.isdecimal():
        _check(nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(int(device)), ctypes.byref(handle)))
    else:
        _check(nvml.nvmlDeviceGetHandleByUUID(device.encode(), ctypes.byref(handle)))
    _check(nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(info)))
    return int(info.used)


def _check(code: int) -> None:
    """Raises OSError for any answer of NVML but success."""
    if code != 0:
        raise OSError(f"NVML answers {code}")
