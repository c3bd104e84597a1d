"""Python, torch and what belongs to it, asked of the interpreter that is to run jobs; torch is never loaded here."""

import json
import os
import re
import subprocess
from importlib.metadata import requires
from pathlib import Path
from typing import Any

from rekindle.contract.environment import clean_environment
from rekindle_service.cli.checks.finding import Finding, at_least, ok, problem, warning

PACKAGES = ("torch", "torchvision", "torchmetrics")

_SECONDS = 120  # a cold import from a slow disk
_OLDEST_PYTHON = (3, 11)
_QUESTION = """
import importlib, importlib.metadata, json, sys
facts = {"python": list(sys.version_info[:3]), "packages": {}, "gloo": "torch cannot be loaded", "cuda": None}
for name in ("torch", "torchvision", "torchmetrics"):
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        facts["packages"][name] = {"version": None, "error": "not installed"}
        continue
    try:
        importlib.import_module(name)
        error = None
    except Exception as problem:
        error = f"{type(problem).__name__}: {problem}"
    facts["packages"][name] = {"version": version, "error": error}
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
print(json.dumps(facts))
"""


def software(python: str) -> list[Finding]:
    """Run ``python`` once, as a job would be run, and judge its answer."""
    try:
        facts = _ask(python)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        stderr = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip()
        why = stderr.splitlines()[-1] if stderr else str(error)
        return [problem("python", f"{python} does not answer: {why}", "Name another with --python.")]
    oldest = oldest_versions()
    judged = [judge_package(name, facts["packages"][name], oldest[name]) for name in PACKAGES]
    found = [judge_python(python, tuple(facts["python"])), *judged, judge_gloo(facts["gloo"])]
    there = len(list(Path("/dev").glob("nvidia[0-9]*")))
    return found if facts["cuda"] is None else [*found, judge_cuda(facts["cuda"], there)]


def _ask(python: str) -> dict[str, Any]:
    command = [python, "-P", "-W", "ignore", "-c", _QUESTION]
    environment = clean_environment(os.environ)
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=_SECONDS, check=True
    )
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1] if done.stdout else b"")
    return facts


def oldest_versions() -> dict[str, tuple[int, ...]]:
    """The oldest supported version of each package, as this distribution declares it."""
    declared = (re.match(r"([\w-]+)\s*>=\s*([\d.]+)", each) for each in requires("rekindle") or [])
    return {found[1]: version_numbers(found[2]) for found in declared if found}


def version_numbers(text: str) -> tuple[int, ...]:
    """``2.15.0+cu130`` → ``(2, 15, 0)``."""
    return tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3])


def judge_python(python: str, version: tuple[int, ...]) -> Finding:
    told = ".".join(map(str, version))
    advice = "Jobs need Python 3.11 or later; name another with --python."
    enough = float(version[:2] >= _OLDEST_PYTHON)
    return at_least("python", enough, enough=1, least=1, detail=f"{told} ({python})", advice=advice)


def judge_package(name: str, found: dict[str, Any], oldest: tuple[int, ...]) -> Finding:
    """torch must be there for any job, the others only for recipes."""
    bad = problem if name == "torch" else warning
    least = ".".join(map(str, oldest))
    if found["version"] is None:
        return bad(name, "not installed", f'Install it: python -m pip install "{name}>={least}"')
    if found["error"] is not None:
        detail = f"{found['version']} is installed but cannot be loaded: {found['error']}"
        return bad(name, detail, "Install torch, torchvision and torchmetrics anew, all from the same index.")
    if version_numbers(found["version"]) < oldest:
        return bad(name, f"{found['version']} is older than {least}", f'Upgrade: pip install -U "{name}>={least}"')
    return ok(name, found["version"])


def judge_cuda(cuda: dict[str, Any], there: int) -> Finding:
    """``there``: the GPUs that the kernel shows."""
    built = "built for the CPU alone" if cuda["built"] is None else f"built for CUDA {cuda['built']}"
    detail = f"torch is {built} and can use {cuda['usable']} of {there} GPUs"
    if cuda["usable"] < there:
        return problem("cuda", detail, "Install a torch whose CUDA the driver supports; is CUDA_VISIBLE_DEVICES set?")
    return ok("cuda", detail)


def judge_gloo(error: str | None) -> Finding:
    if error is None:
        return ok("gloo", "a process group of one rank works")
    advice = "Make the host name resolve (/etc/hosts), or name a network interface in GLOO_SOCKET_IFNAME."
    return problem("gloo", f"no process group can be made: {error}", advice)
