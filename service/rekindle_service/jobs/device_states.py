"""Putting devices aside, and using them again."""

import threading
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from rekindle_service.machine.health import DeviceHealth
from rekindle_service.machine.slots import Machine, Slot
from rekindle_service.store import Store
from rekindle_service.store.tables import DeviceState

_MISSING = "this machine does not have it any more, or it is excluded from jobs"
_NO_FAULTS: Mapping[str, Sequence[str]] = MappingProxyType({})


class DeviceStates:
    """Rows of devices, and what ``health`` says of them. Any thread may call it, and any method raises StorageError.

    ``faults`` are those that each device has now, by slot name: what a person knew when they enabled it does not put
    it aside again.
    """

    def __init__(self, store: Store, machine: Machine, health: DeviceHealth) -> None:
        self.machine, self.health = machine, health
        self.faults = _NO_FAULTS
        self._store = store
        self._changing = threading.Lock()

    def slot(self, name: str) -> Slot | None:
        return next((slot for slot in self.machine.slots if slot.name == name), None)

    def rows(self) -> dict[str, DeviceState]:
        """Rows of this machine's devices, by slot name."""
        rows = self._store.devices.states()
        return {slot.name: rows[key] for slot in self.machine.slots if (key := _key(slot)) in rows}

    def refresh(self) -> None:
        """Read the rows."""
        put_aside = {name: row.reason for name, row in self.rows().items() if row.reason}
        self.health.set_failed({**dict.fromkeys(self._missing(), _MISSING), **put_aside})

    def _missing(self) -> set[str]:
        """GPUs that jobs have held since an earlier server, on a machine that had them.

        None where no GPU is left: then the driver is to blame, as after an update, and jobs may run on for all that.
        """
        slots = {slot.name for slot in self.machine.slots}
        if not self.machine.count("cuda"):
            return set()
        holding = self._store.holding()
        held = {name for job in holding if job.spec.device_kind == "cuda" for name in job.devices}
        return held - slots

    def disable(self, slot: Slot, reason: str, by: str | None) -> None:
        """No job gets the slot from now on, and those that run on it leave it. ``by``: None is rekindle itself."""
        with self._changing:
            self._store.devices.disable(_key(slot), reason, time.time(), by)
            self.refresh()

    def disable_for(self, slot: Slot, fault: str, found_at: float) -> bool:
        """Put it aside for ``fault``, unless it is already or a person has enabled it in spite of that."""
        with self._changing:
            row = self._store.devices.states().get(_key(slot))
            if row is not None and (row.reason or fault in row.acknowledged or found_at <= row.at):
                return False
            self._store.devices.disable(_key(slot), fault, time.time(), None)
            self.refresh()
            return True

    def enable(self, slot: Slot, by: str) -> None:
        with self._changing:
            self._store.devices.enable(_key(slot), time.time(), by, self.faults.get(slot.name, ()))
            self.refresh()


def _key(slot: Slot) -> str:
    """Key by which a device is known after a reboot, too."""
    return slot.uuid or slot.name
