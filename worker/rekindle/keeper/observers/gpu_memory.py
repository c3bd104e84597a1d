"""Have the GPUs released what a job's dead processes held? A rank that starts earlier runs out of memory."""

import time
from collections.abc import Sequence

from rekindle.contract import nvml

TIMEOUT = 10.0  # seconds; a driver takes longest when it writes a dump of a failed kernel
STEADY = 2.0  # seconds without a byte less, after which the memory is assumed to belong to somebody else
TOLERANCE = 64 << 20  # bytes that the driver's own bookkeeping may grow by
_INTERVAL = 0.05  # seconds


class GpuMemory:
    """The memory of some GPUs, measured from what was in use when this was made."""

    def __init__(self, devices: Sequence[str], library: str = nvml.LIBRARY) -> None:
        """``devices``: UUIDs or indices, as in CUDA_VISIBLE_DEVICES. Make it while nothing of the job runs."""
        self._devices, self._library = devices, library
        self._before = self._used()

    def wait_released(self) -> int:
        """Wait until no more is in use than at first; the bytes that are still held, 0 where nothing is known."""
        began = shrunk_at = time.monotonic()
        held = least = self._held()
        while held and (now := time.monotonic()) < min(began + TIMEOUT, shrunk_at + STEADY):
            if held < least:
                least, shrunk_at = held, now
            time.sleep(_INTERVAL)
            held = self._held()
        return held

    def _held(self) -> int:
        more = [now - before for now, before in zip(self._used(), self._before, strict=False)]
        return sum(each for each in more if each > TOLERANCE)

    def _used(self) -> list[int]:
        """Bytes in use on each device; nothing where the driver does not answer for all of them."""
        readings = nvml.read_gpus(self._devices, self._library)
        used = [reading.memory_used_bytes for reading in readings if reading is not None]
        known = [each for each in used if each is not None]
        return known if len(known) == len(self._devices) else []
