"""The slots of this machine: one CUDA device each, and as many CPU slots as the settings say; which a job gets."""

import itertools
import math
import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml
import structlog

from rekindle.contract.cores import kernel_bus_id, numa_node
from rekindle.contract.field_texts import Described
from rekindle.contract.job_options import LinkRule

_log = structlog.get_logger(__name__)

TOPOLOGY_LEVELS = ("nvlink", "pix", "pxb", "phb", "node", "sys")
"""Kinds of link between two GPUs, best first, by the names that ``nvidia-smi topo`` uses."""

_LINKED = "nvlink"
_NVIDIA, _DISPLAY = "0x10de", "0x03"  # a vendor on the PCI bus, and the class of what can show or compute
_MAX_GROUPS = 2000  # that are compared with each other
_LEVELS = {0: "pix", 10: "pix", 20: "pxb", 30: "phb", 40: "node", 50: "sys"}
_ROUNDING = 1e-6
"""Three times a third is a whole."""


@dataclass(frozen=True, slots=True)
class Slot(Described):
    """Room for one rank."""

    name: str
    """Name of the slot, such as `cpu:0` or `cuda:1`."""
    device: str
    """`cpu` or `cuda`."""
    index: int
    """Index among the slots of its kind, from 0."""
    model: str | None = None
    """Model of the GPU; null for a CPU slot."""
    memory: int | None = None
    """Memory of the GPU in bytes; null for a CPU slot, and where the driver does not report it."""
    uuid: str | None = None
    """UUID of the GPU, or of its MIG instance: its index can change with a reboot, this cannot."""
    bus_id: str | None = None
    """Address of the GPU on the PCI bus, as in `/sys/bus/pci/devices`."""
    numa_node: int | None = None
    """NUMA node of the GPU; null where the machine has only one, or does not report it."""


@dataclass(frozen=True, slots=True)
class Link(Described):
    """How two GPUs reach each other."""

    first: str
    """Name of a slot."""
    second: str
    """Name of the other slot."""
    kind: str
    """Kind of the link: `nvlink`, or `pix`, `pxb`, `phb`, `node`, `sys` as `nvidia-smi topo` explains them."""


@dataclass(slots=True)
class Machine:
    """All slots, and the links between the GPUs. GPUs that the driver did not know at the start are added later."""

    slots: tuple[Slot, ...]
    links: tuple[Link, ...] = ()
    known_gpus: int = 0  # by the driver, also those that are hidden from this server, or that MIG divides

    def count(self, device: str) -> int:
        return sum(slot.device == device for slot in self.slots)

    def add(self, found: "Machine") -> list[Slot]:
        """The GPUs of ``found`` that were not known, and are slots from now on."""
        known, names = {slot.uuid for slot in self.slots}, {slot.name for slot in self.slots}
        new = [slot for slot in found.slots if slot.name not in names and slot.uuid not in known]
        self.known_gpus = found.known_gpus
        self.links = tuple({(link.first, link.second): link for link in (*self.links, *found.links)}.values())
        self.slots = tuple(sorted((*self.slots, *new), key=lambda slot: (slot.device != "cuda", slot.index)))
        return new


def find_machine(
    cpu_slots: int, environment: Mapping[str, str] = os.environ, *, exclude: Sequence[str] = ()
) -> Machine:
    """Ask the NVIDIA driver for its GPUs, less those that CUDA_VISIBLE_DEVICES hides from this server.

    ``exclude`` names further GPUs that no job gets, by slot name, index or UUID.
    """
    cpus = tuple(Slot(f"cpu:{index}", "cpu", index) for index in range(cpu_slots))
    gpus, links, known = _find_gpus()
    hidden = visible_gpus(gpus, ",".join(name.removeprefix("cuda:") for name in exclude))
    unknown = [name for name in exclude if not visible_gpus(gpus, name.removeprefix("cuda:"))]
    if unknown:
        _log.warning("exclude_devices names GPUs that this machine does not have", devices=unknown)
    setting = environment.get("CUDA_VISIBLE_DEVICES")
    seen = visible_gpus(gpus, setting)
    if _is_ambiguous(gpus, setting, environment):
        _log.warning(
            "CUDA_VISIBLE_DEVICES is read in the order of nvidia-smi, as with CUDA_DEVICE_ORDER=PCI_BUS_ID",
            to=[f"{gpu.name} {gpu.model}" for gpu in seen],
        )
    visible = tuple(gpu for gpu in seen if gpu not in hidden)
    names = {slot.name for slot in visible}
    return Machine((*visible, *cpus), tuple(link for link in links if {link.first, link.second} <= names), known)


def visible_gpus(gpus: Iterable[Slot], setting: str | None) -> tuple[Slot, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES names by index or by (the beginning of a) UUID; all where it is not set."""
    if setting is None:
        return tuple(gpus)
    names = [name.strip() for name in setting.split(",") if name.strip()]
    return tuple(
        gpu
        for gpu in gpus
        if any(
            name == str(gpu.index) or (name.startswith(("GPU-", "MIG-")) and (gpu.uuid or "").startswith(name))
            for name in names
        )
    )


def count_on_bus(devices: Path = Path("/sys/bus/pci/devices")) -> int:
    """The GPUs of NVIDIA that the kernel has found, whether or not a driver serves them."""
    found = 0
    for device in devices.glob("*"):
        with suppress(OSError):
            vendor, kind = (device / "vendor").read_text().strip(), (device / "class").read_text().strip()
            found += vendor == _NVIDIA and kind.startswith(_DISPLAY)
    return found


def _is_ambiguous(gpus: Sequence[Slot], setting: str | None, environment: Mapping[str, str]) -> bool:
    """Whether CUDA itself would read the indices of ``setting`` differently: it counts the fastest GPU first."""
    indexed = any(name.strip().isdecimal() for name in (setting or "").split(","))
    return indexed and len({gpu.model for gpu in gpus}) > 1 and environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID"


def choose_slots(
    free: Sequence[Slot], count: int, links: Iterable[Link], rule: LinkRule = LinkRule.PREFERRED
) -> list[Slot] | None:
    """``count`` of the ``free`` slots in the order of their indices: those that reach each other best.

    Of equally good groups, the one that leaves the best linked slots for the next job. None where there are too few, or
    none of the kind that ``rule`` demands.
    """
    kinds = {frozenset((link.first, link.second)): link.kind for link in links}
    if len(free) < count:
        return None
    ordered = sorted(free, key=lambda slot: slot.index)
    best = ordered[:count] if not kinds or count == len(free) else _best_group(ordered, count, kinds, rule)
    linked = [kinds.get(frozenset((one.name, other.name))) == _LINKED for one, other in itertools.combinations(best, 2)]
    if (rule is LinkRule.REQUIRED and not all(linked)) or (rule is LinkRule.AVOIDED and any(linked)):
        return None
    return best


def _best_group(slots: list[Slot], count: int, kinds: Mapping[frozenset[str], str], rule: LinkRule) -> list[Slot]:
    """In the order of ``slots``. Exact for up to 16 GPUs as a rule; beyond that greedy from every first slot.

    First counts how well the group is linked, then the slots that are left, then in how few NUMA nodes each is.
    """
    own = [[_distance(one, other, kinds, rule) for other in slots] for one in slots]
    rest = [[_distance(one, other, kinds, LinkRule.PREFERRED) for other in slots] for one in slots]
    every = range(len(slots))

    def total(group: Iterable[int]) -> int:
        return sum(own[one][other] for one, other in itertools.combinations(group, 2))

    def split(group: Iterable[int]) -> int:
        """Pairs at different NUMA nodes."""
        pairs = itertools.combinations(group, 2)
        return sum(slots[one].numa_node != slots[other].numa_node for one, other in pairs)

    def left(group: Iterable[int]) -> tuple[list[int], int, int]:
        """The links that stay free, best first: more good ones are better, whatever the others are."""
        others = [slot for slot in every if slot not in group]
        links = sorted(rest[one][other] for one, other in itertools.combinations(others, 2))
        return links, split(group), split(others)

    def grow(first: int) -> tuple[int, ...]:
        group = [first]
        while len(group) < count:
            others = (slot for slot in every if slot not in group)
            group.append(min(others, key=lambda slot: (sum(own[slot][each] for each in group), slot)))
        return tuple(sorted(group))

    is_small = math.comb(len(slots), count) <= _MAX_GROUPS
    groups = list(itertools.combinations(every, count)) if is_small else [grow(first) for first in every]
    least = min(map(total, groups))
    return [slots[index] for index in min((group for group in groups if total(group) == least), key=left)]


def _distance(one: Slot, other: Slot, kinds: Mapping[frozenset[str], str], rule: LinkRule) -> int:
    """How badly two slots reach each other."""
    kind = kinds.get(frozenset((one.name, other.name)))
    if rule is LinkRule.AVOIDED:
        return int(kind == _LINKED)
    return len(TOPOLOGY_LEVELS) if kind is None else TOPOLOGY_LEVELS.index(kind)


def cuda_visible_devices(slots: Iterable[Slot], names: Iterable[str]) -> str:
    """The value of CUDA_VISIBLE_DEVICES that shows exactly the GPUs among ``names``, in that order; "" for none."""
    by_name = {slot.name: slot for slot in slots if slot.device == "cuda"}
    return ",".join(by_name[name].uuid or str(by_name[name].index) for name in names if name in by_name)


def _find_gpus() -> tuple[list[Slot], list[Link], int]:
    """Ask the driver; the number is that of the GPUs that answer."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
            _log.warning("The NVIDIA driver cannot be used; there are no GPUs", error=str(error))
        return [], [], 0
    try:
        handles, known = _handles()
        gpus = [_describe(index, handle) for index, handle in handles.items()]
        pairs = itertools.combinations(zip(gpus, handles.values(), strict=True), 2)
        return gpus, [Link(one.name, other.name, _link(a, b)) for (one, a), (other, b) in pairs], known
    except pynvml.NVMLError as error:
        _log.warning("The NVIDIA driver answers with an error; no GPU is used", error=str(error))
        return [], [], 0
    finally:
        pynvml.nvmlShutdown()


def _handles() -> tuple[dict[int, Any], int]:
    """What CUDA can use, by index: each GPU that answers, or where MIG divides it, its instances; how many answer."""
    handles, index, known = dict[int, Any](), 0, 0
    for number in range(pynvml.nvmlDeviceGetCount()):
        try:
            gpu = pynvml.nvmlDeviceGetHandleByIndex(number)
            pynvml.nvmlDeviceGetUUID(gpu)
        except pynvml.NVMLError as error:
            _log.warning("A GPU does not answer; no job gets it", gpu=number, error=str(error))
            index += 1
            continue
        known += 1
        for handle in _instances(gpu):
            handles[index] = handle
            index += 1
    return handles, known


def _instances(gpu: Any) -> list[Any]:
    """The parts of a GPU that MIG divides; else the GPU itself."""
    if _ask(pynvml.nvmlDeviceGetMigMode, gpu, default=[0])[0] != pynvml.NVML_DEVICE_MIG_ENABLE:
        return [gpu]
    count = _ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, gpu, default=0)
    found = [_ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, index, default=None) for index in range(count)]
    return [handle for handle in found if handle is not None]


def _describe(index: int, handle: Any) -> Slot:
    bus_id, memory = _bus_id(handle), _ask(pynvml.nvmlDeviceGetMemoryInfo, handle, default=None)
    return Slot(
        name=f"cuda:{index}",
        device="cuda",
        index=index,
        model=_ask(pynvml.nvmlDeviceGetName, handle, default=None),
        memory=None if memory is None else int(memory.total),
        uuid=_ask(pynvml.nvmlDeviceGetUUID, handle, default=None),
        bus_id=bus_id,
        numa_node=None if bus_id is None else numa_node(bus_id),
    )


def _ask(function: Callable[..., Any], *arguments: Any, default: Any) -> Any:
    """``default`` where this GPU, or this driver, does not support the call."""
    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return default


def _bus_id(handle: Any) -> str | None:
    whole = _ask(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle, default=handle)
    found = _ask(pynvml.nvmlDeviceGetPciInfo, whole, default=None)
    return None if found is None else kernel_bus_id(str(found.busId))


def _link(first: Any, second: Any) -> str:
    try:
        if pynvml.nvmlDeviceGetP2PStatus(first, second, pynvml.NVML_P2P_CAPS_INDEX_NVLINK) == pynvml.NVML_P2P_STATUS_OK:
            return _LINKED
        return _LEVELS.get(pynvml.nvmlDeviceGetTopologyCommonAncestor(first, second), "sys")
    except pynvml.NVMLError:
        return "sys"  # unknown: assume the slowest


def free_shares(
    machine: Machine, holding: Iterable[tuple[Iterable[str], float]], unusable: Container[str] = ()
) -> dict[str, float]:
    """What is free of each slot, 0 to 1, by name. ``holding``: the slots of each job and its share of each.

    Slots that are ``unusable`` have nothing free.
    """
    free = {slot.name: 0.0 if slot.name in unusable else 1.0 for slot in machine.slots}
    for slots, share in holding:
        for name in slots:
            if name in free:
                free[name] = max(0.0, free[name] - share)
    return {name: 0.0 if share < _ROUNDING else share for name, share in free.items()}


def slots_with_room(slots: Iterable[Slot], free: Mapping[str, float], share: float) -> list[Slot]:
    """The ``slots`` of which ``share`` is free, in their order; of a whole one, nothing is in use."""
    return [slot for slot in slots if free.get(slot.name, 0.0) + _ROUNDING >= share]


def fullest_first(slots: Sequence[Slot], free: Mapping[str, float]) -> list[Slot]:
    """For jobs that share: on GPUs that others share already, so that whole ones stay free."""
    return sorted(slots, key=lambda slot: (round(free.get(slot.name, 0.0), 6), slot.index))
