"""Have the GPUs given back what a job's dead processes held? A rank that starts before runs out of memory."""

import time
from collections.abc import Sequence

from rekindle.keeper import nvml

PATIENCE = 10.0  # seconds; a driver takes longest when it writes a dump of a failed kernel
STEADY = 2.0  # seconds without a byte less, after which the memory is taken to be somebody else's
TOLERANCE = 64 << 20  # bytes that the driver's own bookkeeping may grow by
_LOOK_EVERY = 0.05  # seconds


class GpuMemory:
    """The memory of some GPUs, measured from what was in use when this was made."""

    def __init__(self, devices: Sequence[str], library: str = nvml.LIBRARY) -> None:
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
            with nvml.opened(self._library) as library:
                return [nvml.find(library, device).memory()[0] for device in self._devices]
        except OSError:
            return []
