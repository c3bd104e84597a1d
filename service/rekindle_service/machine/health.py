"""Which slots no job may get now, and who uses them. Asking is cheap: nothing here waits for a driver."""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import psutil

from rekindle.contract.environment import RUN_DIR
from rekindle.contract.field_texts import Described
from rekindle.contract.processes import parent_of

_NO_REASONS: Mapping[str, str] = MappingProxyType({})
_NO_USERS: Mapping[str, tuple["DeviceUser", ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class DeviceUser(Described):
    """A process of no job that uses a GPU. What its machine does not show is None, as in a container."""

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
        """The reasons of ``unusable``, without the slots that are only in use by somebody else."""
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


def describe_user(pid: int, keepers: Collection[int], runs: Path) -> DeviceUser | None:
    """None for a process of a job: below one of the ``keepers``, or with a run directory in ``runs``.

    Its name is None where this machine does not show the process, and its user where that has no name.
    """
    if _is_below(pid, keepers) or _has_run_dir(pid, runs):
        return None
    try:
        process = psutil.Process(pid)
        name = process.name()
    except psutil.Error:
        return DeviceUser(pid, None, None, None)
    try:
        user = process.username()
    except psutil.Error:
        user = None
    return DeviceUser(pid, name, user, None)


def _is_below(pid: int, keepers: Collection[int]) -> bool:
    ancestor: int | None = pid
    while ancestor:
        if ancestor in keepers:
            return True
        ancestor = parent_of(ancestor)
    return False


def _has_run_dir(pid: int, runs: Path) -> bool:
    """Whether the process is of a job whose keeper may have ended before it."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return any(each.startswith(f"{RUN_DIR}={runs}/".encode()) for each in environment.split(b"\0"))
