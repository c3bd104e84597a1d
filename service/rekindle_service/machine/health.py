"""Which slots no job may get now, and why. Asking is cheap: nothing here waits for a driver."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from rekindle.contract.field_texts import DESCRIBED

_NO_REASONS: Mapping[str, str] = MappingProxyType({})
_NO_USERS: Mapping[str, tuple["DeviceUser", ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DeviceUser:
    """A process of no job that uses a GPU. What its machine does not show is None, as in a container."""

    __pydantic_config__ = DESCRIBED

    pid: int
    """Id of the process."""
    name: str | None
    """Name of the process."""
    user: str | None
    """UNIX user of the process."""
    memory_bytes: int | None
    """Bytes of the GPU's memory that it uses."""


class DeviceHealth:
    """What is known of the slots of this machine, as reasons by slot name. Any thread may call it.

    ``failed`` are the slots that are disabled: jobs that run on them must leave them. ``unusable`` has those and the
    slots that somebody else uses: no job is given one, but one that runs there already stays. ``revision`` changes
    with every change of either; ``on_change`` is called after it.
    """

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.on_change = on_change
        self.revision = 0
        self._lock = threading.Lock()
        self._failed = self._in_use = _NO_REASONS
        self._users = _NO_USERS

    def unusable(self) -> dict[str, str]:
        """Reasons by slot name, each a sentence without its full stop."""
        with self._lock:
            return {**self._in_use, **self._failed}

    def failed(self) -> dict[str, str]:
        """As ``unusable``, without the slots that are only in use by somebody else."""
        with self._lock:
            return dict(self._failed)

    def users(self, slot: str) -> tuple[DeviceUser, ...]:
        """Processes of no job that use it."""
        with self._lock:
            return self._users.get(slot, ())

    def set_failed(self, reasons: Mapping[str, str]) -> None:
        """The slots that are disabled now, all of them."""
        with self._lock:
            changed, self._failed = self._failed != reasons, dict(reasons)
            self.revision += changed
        if changed:
            self.on_change()

    def set_in_use(self, reasons: Mapping[str, str], users: Mapping[str, Sequence[DeviceUser]] = _NO_USERS) -> None:
        """The slots that somebody else uses now, or of which nothing is known, all of them."""
        with self._lock:
            changed, self._in_use = self._in_use != reasons, dict(reasons)
            self._users = {slot: tuple(each) for slot, each in users.items()}
            self.revision += changed
        if changed:
            self.on_change()
