"""What the keeper imports once so that no attempt has to: a fork inherits it.

Only packages known to start no thread and touch no device when imported. The keeper must stay single-threaded, since
a fork copies only the forking thread, and every lock that another one held stays locked for ever.
"""

import ast
import importlib
import importlib.util
import os
import sys
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import TargetKind

_ALWAYS = (
    "encodings.idna",
    "multiprocessing.popen_fork",
    "multiprocessing.queues",
    "torch.distributed.run",
    "torch.nn.parallel",
    "torch.utils.data",
    "torch._subclasses.schema_check_mode",
    "torch._dynamo",  # optimizers import it at their first step
    "rekindle.keeper.torchrun.rendezvous",
    "rekindle.rank.wrapper",
)
_SAFE = {"torch", "numpy", "torchvision", "torchmetrics", "sklearn", "scipy", "rekindle"}
used_cuda_at_import = ""
"""The preloaded modules one of which has used CUDA, so that no fork of this process can; empty where none has."""


def preload(spec: JobSpec, code: Path) -> list[str]:
    """Import torch and what the job's script names, as far as that is safe; returns what could not be imported."""
    global used_cuda_at_import
    named = _named_by(spec, code)
    failed = preload_torch() + import_all(named)
    if os.environ.get("CUDA_VISIBLE_DEVICES") != "" and _forks_lack_cuda():
        used_cuda_at_import = " or ".join(name for name in named if name.partition(".")[0] != "torch") or "torch"
    return failed


def preload_torch() -> list[str]:
    """What every job needs; returns what could not be imported."""
    return import_all(_ALWAYS)


def import_all(names: Iterable[str]) -> list[str]:
    """Import the modules ``names``; returns those that could not be imported, with the reason.

    A rank, which is a fork, does not run their finalizers at its end, as a fork of multiprocessing would not. Those of
    torch unregister one operator after the other, and so copy 30 MB of what the processes share.
    """
    failed: list[str] = []
    before, finalizers_before = dict(os.environ), _finalizers()
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:  # noqa: BLE001  # a preload that fails costs only time
            failed.append(f"{name}: {error}")
    for name in os.environ.keys() - before:  # torch sets some of its own, which the script must not inherit
        del os.environ[name]
    for finalizer in _finalizers() - finalizers_before:
        finalizer.atexit = False
    return failed


def _finalizers() -> "set[weakref.finalize[Any, Any]]":
    return set(weakref.finalize._registry)  # type: ignore[attr-defined]  # there is no public list


def lacks_cuda() -> bool:
    """Whether this process was forked from one that had used CUDA, and can use it no more."""
    cuda = sys.modules.get("torch.cuda")
    return cuda is not None and cuda._is_in_bad_fork()


def _forks_lack_cuda() -> bool:
    """By a fork, since torch knows it only there."""
    pid = os.fork()
    if pid == 0:
        os._exit(lacks_cuda())
    return os.waitpid(pid, 0)[1] != 0


def _named_by(spec: JobSpec, code: Path) -> list[str]:
    with suppress(OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        if (source := _source(spec, code)) is not None:
            return safe_imports(ast.parse(source.read_bytes()), recipe=spec.kind is TargetKind.RECIPE)
    return []


def safe_imports(tree: ast.AST, *, recipe: bool = False) -> list[str]:
    """Modules that ``tree`` imports from packages on the safe list, in order, torch's included."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.append(node.module)
    modules = [name for name in names if name.partition(".")[0] in _SAFE]
    if "rekindle" in modules or recipe:
        modules.append("rekindle.training.run")
    return list(dict.fromkeys(modules))


def _source(spec: JobSpec, code: Path) -> Path | None:
    """The file of the job's target, found without importing the user's code."""
    if spec.kind is TargetKind.SCRIPT:
        return code / spec.target
    if spec.kind is TargetKind.RECIPE:
        found = importlib.util.find_spec(f"rekindle.recipes.{spec.target}")
        return None if found is None or found.origin is None else Path(found.origin)
    return code / Path(*spec.target.split(".")).with_suffix(".py")
