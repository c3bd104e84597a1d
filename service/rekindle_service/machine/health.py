"""Which slots no job may get now, and why. Asking is cheap: nothing here waits for a driver."""

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType

_NONE: Mapping[str, str] = MappingProxyType({})


class DeviceHealth:
    """What is known of the slots of this machine, as reasons by slot name. Any thread may call it.

    ``failed`` are the slots that were put aside: jobs that run on them must leave them. ``unusable`` has those and the
    slots that somebody else uses: no job is given one, but one that runs there already stays. ``revision`` changes
    with every change of either; ``on_change`` is called after it.
    """

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.on_change = on_change
        self.revision = 0
        self._lock = threading.Lock()
        self._failed = self._in_use = _NONE

    def unusable(self) -> dict[str, str]:
        """Reasons by slot name, each a sentence without its full stop."""
        with self._lock:
            return {**self._in_use, **self._failed}

    def failed(self) -> dict[str, str]:
        """As ``unusable``, without the slots that are only in use by somebody else."""
        with self._lock:
            return dict(self._failed)

    def set_failed(self, reasons: Mapping[str, str]) -> None:
        """The slots that are put aside now, all of them."""
        self._change(failed=reasons)

    def set_in_use(self, reasons: Mapping[str, str]) -> None:
        """The slots that processes of nobody's job use now, all of them."""
        self._change(in_use=reasons)

    def _change(self, failed: Mapping[str, str] | None = None, in_use: Mapping[str, str] | None = None) -> None:
        with self._lock:
            before = self._failed, self._in_use
            self._failed = self._failed if failed is None else dict(failed)
            self._in_use = self._in_use if in_use is None else dict(in_use)
            if (self._failed, self._in_use) == before:
                return
            self.revision += 1
        self.on_change()
