"""What this machine is and how busy: a figure that was measured says nothing without it."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from rekindle_service.machine.devices import Machine


def describe(machine: Machine) -> dict[str, Any]:
    """Processor, cores, memory (bytes), GPUs, versions, and the load now: mean of runnable processes over 1 minute.

    ``torch`` is that of the server's environment; a job with a Python of its own may have another.
    """
    return {
        "host": platform.node(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": psutil.virtual_memory().total,
        "gpus": [slot.model or slot.name for slot in machine.slots if slot.device == "cuda"],
        "cpu_slots": machine.count("cpu"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": _version("torch"),
        "rekindle": _version("rekindle"),
        "load": round(os.getloadavg()[0], 2),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
