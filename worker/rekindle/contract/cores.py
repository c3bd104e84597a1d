"""On which processor cores a rank is to run: those near its GPU, or those of its CPU slot."""

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

PCI_DEVICES = Path("/sys/bus/pci/devices")
GPUS = Path("/proc/driver/nvidia/gpus")


def numa_node(bus_id: str, pci: Path = PCI_DEVICES) -> int | None:
    """Of the device ``bus_id`` (``0000:3b:00.0``); None where the machine has one node, or does not say."""
    with suppress(OSError, ValueError):
        node = int((pci / bus_id / "numa_node").read_text())
        return node if node >= 0 else None
    return None


def cores_near_gpus(uuids: Collection[str], gpus: Path = GPUS, pci: Path = PCI_DEVICES) -> set[int]:
    """The cores of the NUMA nodes of these GPUs; all that are known, none where nothing is known of one of them."""
    cores: set[int] = set()
    for uuid in uuids:
        bus_id = _bus_id_of(uuid, gpus)
        near = set() if bus_id is None or numa_node(bus_id, pci) is None else _local_cores(pci / bus_id)
        if not near:
            return set()
        cores |= near
    return cores


def cores_of_slots(indices: Collection[int], slots: int, usable: Collection[int]) -> set[int]:
    """Those of the CPU slots ``indices`` out of ``slots`` that share the cores ``usable`` equally.

    Each slot has as many as the others, so that a job runs as fast, and sums in the same order, on any of them. None
    where there are fewer cores than slots.
    """
    each = len(usable) // slots if slots else 0
    ordered = sorted(usable)
    return {core for index in indices if index < slots for core in ordered[index * each : (index + 1) * each]}


def parse_cores(text: str) -> set[int]:
    """``0-3,8`` as the kernel writes it. Raises ValueError."""
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores


def of_rank(names: Sequence[str], local_rank: int, each: int) -> Sequence[str]:
    """The devices of one rank among those of all ranks of this machine."""
    return names[local_rank * each : (local_rank + 1) * each]


def _local_cores(device: Path) -> set[int]:
    with suppress(OSError, ValueError):
        return parse_cores((device / "local_cpulist").read_text())
    return set()


def _bus_id_of(uuid: str, gpus: Path) -> str | None:
    """From what the driver writes about each GPU, for which it need not be asked."""
    with suppress(OSError):
        for entry in gpus.iterdir():
            with suppress(OSError):
                if uuid in (entry / "information").read_text(errors="replace").split():
                    return entry.name.lower()
    return None
