"""What runs jobs: Python and torch, as their interpreter reports them, and the GPUs, as the driver does."""

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pynvml

from rekindle.contract.environment import RUN_DIR, clean_environment
from rekindle_service.cli.checks import Finding, ok, problem, warning
from rekindle_service.cli.formatting import size
from rekindle_service.launch.local.interpreter import (
    OLDEST_PYTHON,
    OLDEST_TORCH,
    InterpreterCheck,
    read_versions,
    version_numbers,
)

OLDEST = {"torch": OLDEST_TORCH, "torchvision": (0, 26), "torchmetrics": (1, 8)}
"""The oldest supported version of each package that jobs import."""

_TIMEOUT = 120  # seconds; a cold import from a slow disk
_PROBE = """
import importlib, importlib.metadata, json, os, sys
facts = {"python": list(sys.version_info[:3]), "packages": {}, "gloo": "torch cannot be loaded", "cuda": None}
for name in sys.argv[1:]:
    found = facts["packages"][name] = {"version": None, "error": None}
    try:
        found["version"] = importlib.metadata.version(name)
        importlib.import_module(name)
    except Exception as problem:
        found["error"] = f"{type(problem).__name__}: {problem}"
if facts["packages"]["torch"]["error"] is None:
    import torch, torch.distributed as dist
    usable = torch.cuda.device_count() if torch.cuda.is_available() else 0
    facts["cuda"] = {"built": torch.version.cuda, "usable": usable}
    try:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        dist.all_reduce(torch.ones(1))
        facts["gloo"] = None
    except Exception as problem:
        facts["gloo"] = f"{type(problem).__name__}: {problem}"
print(json.dumps(facts), flush=True)
os._exit(0)  # whether a library fails while the interpreter ends is not asked
"""


def interpreters(candidates: Sequence[tuple[str, str]]) -> tuple[list[Finding], str]:
    """What each of ``candidates``, paths with a description each, can run, and the one that a job would get."""
    check, found = InterpreterCheck(), list[Finding]()
    chosen: str | None = None
    for python, description in candidates:
        error = check(python)
        lack = "" if error is None else f": not used, {error.rule}"
        with suppress(OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError):
            lack = f": {read_versions(python)}{lack}"
        chosen = python if chosen is None and error is None else chosen
        found.append(ok("interpreter", f"{python}, {description}{lack}"))
    return found, chosen or candidates[-1][0]


def software(python: str) -> list[Finding]:
    """Run ``python`` once, as it would run a job, and check its report."""
    try:
        facts = _probe(python)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        stderr = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
        why = stderr.splitlines()[-1] if stderr else str(error)
        return [problem("python", f"{python} cannot be run: {why}", "Name another one with --python.")]
    found = [check_python(python, tuple(facts["python"]))]
    found += [check_package(name, facts["packages"][name], python) for name in OLDEST]
    found.append(check_gloo(facts["gloo"]))
    present = len(list(Path("/dev").glob("nvidia[0-9]*")))
    return found if facts["cuda"] is None else [*found, check_cuda(facts["cuda"], present)]


def _probe(python: str) -> dict[str, Any]:
    command = [python, "-P", "-W", "ignore", "-c", _PROBE, *OLDEST]
    environment = {"GLOO_SOCKET_IFNAME": "lo", **clean_environment(os.environ)}  # as in a job
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=_TIMEOUT, check=True
    )
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1] if done.stdout else b"")
    return facts


def check_python(python: str, version: tuple[int, ...]) -> Finding:
    text = ".".join(map(str, version))
    advice = "Jobs need Python 3.11 or later; name another one with --python."
    detail = f"{text} ({python})"
    return ok("python", detail) if version >= OLDEST_PYTHON else problem("python", detail, advice)


def check_package(name: str, found: dict[str, Any], python: str) -> Finding:
    """Report a missing torch, which every job needs, as a problem, and packages of recipes as warnings."""
    bad = problem if name == "torch" else warning
    required = ".".join(map(str, OLDEST[name]))
    install = f'{python} -m pip install -U "{name}>={required}"'
    if found["version"] is None:
        need = "Jobs need it" if name == "torch" else "Recipes need it, other jobs do not"
        return bad(name, "not installed", f"{need}: {install}")
    if found["error"] is not None:
        detail = f"{found['version']} is installed but cannot be loaded: {found['error']}"
        return bad(name, detail, "Reinstall torch, torchvision and torchmetrics, all from the same index.")
    if version_numbers(found["version"]) < OLDEST[name]:
        return bad(name, f"{found['version']} is older than {required}", f"Upgrade it: {install}")
    return ok(name, found["version"])


def check_cuda(cuda: dict[str, Any], present: int) -> Finding:
    """``present``: the number of GPUs that the kernel shows."""
    built = "built for CPU only" if cuda["built"] is None else f"built for CUDA {cuda['built']}"
    detail = f"torch is {built} and can use {cuda['usable']} of {present} GPUs"
    if present and not cuda["usable"]:
        return problem("cuda", detail, "Install a torch whose CUDA the driver supports; check CUDA_VISIBLE_DEVICES.")
    return ok("cuda", detail)  # fewer, too: some may be hidden on purpose, and MIG shows a process one instance


def check_gloo(error: str | None) -> Finding:
    if error is None:
        return ok("gloo", "a process group of one rank works")
    advice = "Bring the loopback interface up (`ip link set lo up`), or name another one in GLOO_SOCKET_IFNAME."
    return problem("gloo", f"no process group can be created: {error}", advice)


# --- GPUs


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
        _describe(process)
        for process in processes
        if not is_of_job(runs, _read_process(process.pid, "environ").split("\0"))
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


def _read_process(pid: int, file: str) -> str:
    try:
        return Path(f"/proc/{pid}/{file}").read_text(errors="replace")
    except OSError:
        return ""


def _describe(process: Any) -> str:
    name = _read_process(process.pid, "comm").strip() or "?"
    memory = "" if process.usedGpuMemory is None else f", {size(int(process.usedGpuMemory))}"
    return f"process {process.pid} ({name}{memory})"
