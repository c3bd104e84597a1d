"""Machines with eight GPUs as `nvidia-smi topo -m` shows them, in the form of `find_machine`.

Sources: kubernetes/kubernetes#53497 (`PCIE`), NVIDIA's description of the DGX-1 (`CUBE_MESH`, in which each GPU reaches
its quad and one of the other quad by NVLink), sgl-project/sglang#13973 (`SWITCHED`: every pair by NVLink).
"""

import itertools
from collections.abc import Callable

from rekindle_service.machine.slots import Link, Machine, Slot


def _machine(model: str, memory: int, kind: Callable[[int, int], str]) -> Machine:
    """``kind`` of the link between two GPUs, of which the first four are near the first processor."""

    def gpu(index: int) -> Slot:
        bus_id = f"0000:{16 + index:02x}:00.0"
        return Slot(f"cuda:{index}", "cuda", index, model, memory << 30, f"GPU-{index:04d}", bus_id, index // 4)

    slots = tuple(map(gpu, range(8)))
    pairs = itertools.combinations(range(8), 2)
    return Machine(slots, tuple(Link(f"cuda:{one}", f"cuda:{other}", kind(one, other)) for one, other in pairs))


def _pcie(one: int, other: int) -> str:
    return "pix" if one // 2 == other // 2 else "phb" if one // 4 == other // 4 else "sys"


def _cube_mesh(one: int, other: int) -> str:
    return "nvlink" if one // 4 == other // 4 or other - one == 4 else "sys"


PCIE = _machine("Tesla P40", 24, _pcie)
CUBE_MESH = _machine("Tesla V100-SXM2-32GB", 32, _cube_mesh)
SWITCHED = _machine("NVIDIA H100 80GB HBM3", 80, lambda *_: "nvlink")
