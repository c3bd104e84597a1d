"""The GPUs, as the NVIDIA driver reports them."""

import os
from pathlib import Path
from typing import Any

import pynvml

from rekindle.contract.environment import RUN_DIR
from rekindle_service.cli.checks.finding import Finding, ok, problem, warning
from rekindle_service.cli.formatting import size


def gpus(runs: Path) -> list[Finding]:
    """The driver and each GPU; processes whose run directory is not in ``runs`` are foreign."""
    try:
        pynvml.nvmlInit()
        driver = ok("gpu driver", str(pynvml.nvmlSystemGetDriverVersion()))
        return [driver, *(_gpu(index, runs) for index in range(pynvml.nvmlDeviceGetCount()))]
    except pynvml.NVMLError_LibraryNotFound:
        return [ok("gpu", "there is no NVIDIA driver: jobs run on the CPU")]
    except pynvml.NVMLError as error:
        return [problem("gpu driver", f"it reports: {error}", "See nvidia-smi and dmesg; reboot after an update.")]


def _gpu(index: int, runs: Path) -> Finding:
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        model = str(pynvml.nvmlDeviceGetName(handle))
        processes = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError as error:
        return problem(f"gpu {index}", f"the driver reports: {error}", "No job gets it. See dmesg for Xid messages.")
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
        used, total = int(memory.used), int(memory.total)
    except pynvml.NVMLError:
        used, total = None, None
    foreign = [
        _describe(process) for process in processes if not is_of_job(runs, _read(process.pid, "environ").split("\0"))
    ]
    return check_gpu(index, model, used, total, foreign)


def check_gpu(index: int, model: str, used: int | None, total: int | None, foreign: list[str]) -> Finding:
    """``used`` and ``total`` in bytes where they are known; ``foreign``: processes of no job of this home."""
    memory = "memory not reported" if used is None or total is None else f"{size(used)} of {size(total)} used"
    detail = f"{model}, {memory}"
    name = f"gpu {index}"
    if foreign:
        advice = "No job gets this GPU while they use it: end them, or hide it with the setting exclude_devices."
        return warning(name, f"{detail}; processes of others: {', '.join(foreign)}", advice)
    return ok(name, detail)


def is_of_job(runs: Path, environment: list[str]) -> bool:
    """Whether a process with this environment is part of a job in ``runs``."""
    return any(variable.startswith(f"{RUN_DIR}={runs}{os.sep}") for variable in environment)


def _read(pid: int, file: str) -> str:
    try:
        return Path(f"/proc/{pid}/{file}").read_text(errors="replace")
    except OSError:
        return ""


def _describe(process: Any) -> str:
    name = _read(process.pid, "comm").strip() or "?"
    memory = "" if process.usedGpuMemory is None else f", {size(int(process.usedGpuMemory))}"
    return f"process {process.pid} ({name}{memory})"
