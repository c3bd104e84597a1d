"""What a run is executed with: interpreter, packages and machine. Written once, when its keeper begins."""

import os
import platform
import time
from contextlib import suppress
from functools import cache
from importlib.metadata import distributions
from pathlib import Path

from rekindle.contract.files import write_json
from rekindle.contract.run_dir.paths import RunDir


def write_environment_info(run_dir: RunDir, run: int) -> None:
    """A disk that is full costs the file, not the run."""
    with suppress(OSError):
        info = {
            "run": run,
            "at": time.time(),
            "host": platform.node(),
            "system": f"{platform.system()} {platform.release()}",
            "processor": _processor(),
            "cores": len(os.sched_getaffinity(0)),
            "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "python": platform.python_version(),
            "packages": list_packages(),
        }
        write_json(run_dir.surroundings, info, durable=False)


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


@cache
def list_packages() -> dict[str, str]:
    """Name and version of everything that is installed, as ``pip list`` has it. A damaged package is omitted.

    Read once: a spare keeper has done so before it forks a keeper, and ends where a package is installed.
    """
    found: dict[str, str] = {}
    for package in distributions():
        with suppress(Exception):  # whatever a broken installation raises, it must not stop a training
            found.setdefault(str(package.metadata["Name"]), str(package.version))
    return dict(sorted(found.items(), key=lambda item: item[0].lower()))
