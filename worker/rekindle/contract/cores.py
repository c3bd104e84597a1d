"""On which processor cores a rank is to run: those near its GPU, or those of its CPU slot."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path

from rekindle.contract.environment import AFFINITY, SLOTS

PCI_DEVICES = Path("/sys/bus/pci/devices")
GPUS = Path("/proc/driver/nvidia/gpus")


class Affinity(StrEnum):
    """Which ranks get cores of their own."""

    NONE = "none"  # they run on all
    NUMA = "numa"  # ranks with GPUs: those of the NUMA node of these
    SLOTS = "slots"  # ranks on CPU slots, too: those of their slots


def cores_of_rank(
    environment: Mapping[str, str],
    local_rank: int,
    devices_per_rank: int,
    usable: Collection[int],
    gpus: Path = GPUS,
    pci: Path = PCI_DEVICES,
) -> set[int]:
    """Cores among ``usable`` that a rank is to run on by the ``environment`` of its keeper; none: it may run on all."""
    affinity, _, slots = environment.get(AFFINITY, "").partition(" ")
    names = _of_rank(environment.get(SLOTS, ""), local_rank, devices_per_rank)
    if affinity == Affinity.SLOTS and names and all(name.startswith("cpu:") for name in names):
        indices = [int(name.removeprefix("cpu:")) for name in names]
        return cores_of_slots(indices, int(slots or 0), usable)
    if affinity in (Affinity.NUMA, Affinity.SLOTS):
        visible = _of_rank(environment.get("CUDA_VISIBLE_DEVICES", ""), local_rank, devices_per_rank)
        return cores_near_gpus(visible, gpus, pci).intersection(usable)
    return set()


def kernel_bus_id(bus_id: str) -> str:
    """Bus id as the kernel writes it (``0000:3b:00.0``) from that of the driver (``00000000:3B:00.0``)."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def numa_node(bus_id: str, pci: Path = PCI_DEVICES) -> int | None:
    """NUMA node of the device ``bus_id`` (``0000:3b:00.0``); None where the machine has one, or does not report it."""
    with suppress(OSError, ValueError):
        node = int((pci / bus_id / "numa_node").read_text())
        return node if node >= 0 else None
    return None


def cores_near_gpus(uuids: Collection[str], gpus: Path = GPUS, pci: Path = PCI_DEVICES) -> set[int]:
    """The cores of the NUMA nodes of these GPUs; none where nothing is known of one of them."""
    cores: set[int] = set()
    for uuid in uuids:
        bus_id = _bus_id_of(uuid, gpus)
        near = set() if bus_id is None or numa_node(bus_id, pci) is None else _local_cores(pci / bus_id)
        if not near:
            return set()
        cores |= near
    return cores


def cores_of_slots(indices: Collection[int], slots: int, usable: Collection[int]) -> set[int]:
    """Cores of the CPU slots ``indices`` out of ``slots`` that share the cores ``usable`` equally.

    Each slot has as many as the others, so that a job runs as fast, and sums in the same order, on any of them. None
    where there are fewer cores than slots.
    """
    each = len(usable) // slots if slots else 0
    ordered = sorted(usable)
    return {core for index in indices if index < slots for core in ordered[index * each : (index + 1) * each]}


def parse_cores(text: str) -> set[int]:
    """Read a list of cores as the kernel writes it (``0-3,8``). Raises ValueError."""
    cores: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        cores.update(range(int(first), int(last or first) + 1))
    return cores


def _of_rank(names: str, local_rank: int, each: int) -> Sequence[str]:
    """The devices of one rank among those of all ranks of this machine."""
    return [name for name in names.split(",") if name][local_rank * each : (local_rank + 1) * each]


def _local_cores(device: Path) -> set[int]:
    with suppress(OSError, ValueError):
        return parse_cores((device / "local_cpulist").read_text())
    return set()


def _bus_id_of(uuid: str, gpus: Path) -> str | None:
    """Bus id of a GPU from what the driver writes about each below /proc, without a call of the driver."""
    with suppress(OSError):
        for entry in gpus.iterdir():
            with suppress(OSError):
                if uuid in (entry / "information").read_text(errors="replace").split():
                    return entry.name.lower()
    return None
