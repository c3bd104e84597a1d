"""How a job is started and on which devices, where its request leaves that open; and what cannot be on this machine.

Which scripts start all their processes themselves, so that torchrun must not, is found in the source, where it is sure:
nothing is run. One that may also be meant for torchrun, because it reads the variables of its ranks or leaves the
launch to a library, is no certain case.
"""

import ast
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import LaunchMode, LinkRule, TargetKind
from rekindle.contract.safe_open import read_small
from rekindle.recipes.catalog import RECIPES
from rekindle_service.loading import PARSING
from rekindle_service.machine.slots import Machine, Slot, choose_slots, visible_gpus
from rekindle_service.submission import FieldError, Submission

VISIBLE = "CUDA_VISIBLE_DEVICES"
_NO_GPU = ("", "-1")  # values of the variable that hide all GPUs
_RANKS = ("min_ranks", "max_ranks")
_MAX_SOURCE = 1 << 20  # bytes of a script that are searched


@dataclass(frozen=True, slots=True)
class Placement:
    """``spec`` without "auto" and without CUDA_VISIBLE_DEVICES, which has become a choice of devices."""

    spec: JobSpec
    reason: str | None = None  # why it is one process, where the request left that open
    error: FieldError | None = None  # of the variable


def place_here(submission: Submission, machine: Machine) -> Placement:
    """Fill in what the request of a job on this machine leaves open.

    The number of ranks, too, where the request names devices and no number.
    """
    spec = submission.spec
    device, error = _device(spec, machine)
    env = {name: value for name, value in spec.env.items() if name != VISIBLE or error is not None}
    spec, reason = choose_launch_mode(submission, replace(spec, device=device, env=env))
    if not submission.has_size and spec.device_names:
        count = len(spec.device_names)
        size: dict[str, Any] = (
            {"devices_per_rank": count} if spec.launch is LaunchMode.PROCESS else dict.fromkeys(_RANKS, count)
        )
        spec = replace(spec, **size)
    return Placement(spec, reason, error)


def choose_launch_mode(submission: Submission, spec: JobSpec) -> tuple[JobSpec, str | None]:
    """``spec`` without the launch mode "auto", and why it is one process, where the request leaves that open."""
    if spec.launch is not LaunchMode.AUTO:
        return spec, None
    reason = _reason_for_one_process(submission)
    return replace(spec, launch=LaunchMode.TORCHRUN if reason is None else LaunchMode.PROCESS), reason


def placement_errors(placement: Placement) -> Iterator[FieldError]:
    """The rules of ranks and launch that a job violates wherever it runs."""
    spec = placement.spec
    if placement.error is not None:
        yield placement.error
    if not 1 <= spec.min_ranks <= spec.max_ranks:
        yield FieldError("ranks", "must be at least 1, and min at most max", _ranks(spec))
    elif spec.launch is LaunchMode.PROCESS and spec.max_ranks > 1:
        yield _several_ranks(spec, placement.reason)


def device_errors(spec: JobSpec, machine: Machine) -> Iterator[FieldError]:
    """The rules of devices that a job on this machine violates."""
    if spec.gpu_share < 1 and spec.device_kind != "cuda":
        rule = f"shares GPUs, but the device of the job is {spec.device}"
        yield FieldError("gpu_share", rule, spec.gpu_share, "omit it, or give cuda as device")
    errors = list(_device_rules(spec, machine))
    yield from errors or _link_rules(spec, machine)


def _several_ranks(spec: JobSpec, reason: str | None) -> FieldError:
    rule = f"must be 1, since the job is one process: {reason or 'launch is process'}"
    hint = f"for the number of devices of the process use devices_per_rank: {spec.max_ranks} (--devices-per-rank)"
    if reason is not None and spec.kind is not TargetKind.RECIPE:
        hint += f', or launch: "torchrun" to start it {spec.max_ranks} times'
    return FieldError("ranks", rule, _ranks(spec), hint)


def _ranks(spec: JobSpec) -> dict[str, int]:
    return {"min": spec.min_ranks, "max": spec.max_ranks}


def _device_rules(spec: JobSpec, machine: Machine) -> Iterator[FieldError]:
    kind, names = spec.device_kind, spec.device_names
    total = machine.count(kind)
    if kind == "cuda" and total == 0:
        yield FieldError("device", "this machine has no GPU", spec.device, 'use "cpu" or "auto"')
    elif unknown := [name for name in names if name not in {slot.name for slot in machine.slots}]:
        offered = ", ".join(slot.name for slot in machine.slots if slot.device == kind)
        yield FieldError("device", "must name slots of this machine", ",".join(unknown), f"it has {offered or 'none'}")
    elif spec.max_devices > (len(names) or total):
        slots = f"{len(names)} slots that device names" if names else f"{total} {kind.upper()} slots of this machine"
        hint = "REKINDLE_CPU_SLOTS sets how many CPU ranks may run at once" if kind == "cpu" else "one rank per GPU"
        if spec.devices_per_rank > 1:
            hint = f"each rank gets {spec.devices_per_rank} devices"
        yield FieldError("ranks", f"exceeds the {slots}", spec.max_ranks, hint)


def _link_rules(spec: JobSpec, machine: Machine) -> Iterator[FieldError]:
    if spec.links is LinkRule.PREFERRED:
        return
    state = "linked by NVLink" if spec.links is LinkRule.REQUIRED else "not linked by NVLink"
    if spec.min_devices < 2:
        yield FieldError("links", "needs at least 2 devices", spec.links, "omit it, or give more ranks or devices")
    elif choose_slots(usable_slots(spec, machine.slots), spec.min_devices, machine.links, spec.links) is None:
        rule = f"this machine has no {spec.min_devices} GPUs of which each pair is {state}"
        yield FieldError("links", rule, spec.links, "see the links: rekindle top, or GET /api/v1/devices")


def usable_slots(spec: JobSpec, slots: tuple[Slot, ...] | list[Slot]) -> list[Slot]:
    """The ``slots`` that the job may get."""
    names = spec.device_names
    return [slot for slot in slots if slot.device == spec.device_kind and (not names or slot.name in names)]


def _device(spec: JobSpec, machine: Machine) -> tuple[str, FieldError | None]:
    """The device of the job, never "auto", after CUDA_VISIBLE_DEVICES was taken for the choice that it is."""
    automatic = "cuda" if machine.count("cuda") else "cpu"
    device = automatic if spec.device == "auto" else spec.device
    value = spec.env.get(VISIBLE)
    if value is None:
        return device, None
    if value.strip() in _NO_GPU and spec.device in ("auto", "cpu"):
        return "cpu", None
    field = f"env.{VISIBLE}"
    if spec.device not in ("auto", "cuda"):
        rule = f"cannot be set together with the device {spec.device}"
        return device, FieldError(field, rule, value, 'omit it: device alone chooses, as in "cuda:0,cuda:1"')
    gpus = [slot for slot in machine.slots if slot.device == "cuda"]
    parts = [part.strip() for part in value.split(",")]
    found = [visible_gpus(gpus, part) for part in parts]
    if any(len(each) != 1 for each in found) or len(set(found)) < len(found):
        offered = ", ".join(slot.name for slot in gpus) or "no GPU"
        rule = "must name different GPUs of this machine by index or UUID"
        return device, FieldError(field, rule, value, f"it has {offered}; choose them with device (--device)")
    return ",".join(gpu.name for each in found for gpu in each), None


def _reason_for_one_process(submission: Submission) -> str | None:
    """Why torchrun must not start the job, as far as that is sure."""
    spec = submission.spec
    if spec.kind is TargetKind.RECIPE:
        recipe = RECIPES.get(spec.target)
        return f"recipe {spec.target} runs in one process" if recipe is not None and recipe.single_process else None
    with suppress(OSError, ValueError):  # the rules of the target say what is wrong with it
        directory = Path(os.path.realpath(submission.code_dir or Path()))
        source = read_small(directory, Path(os.path.realpath(directory / _source(submission))), _MAX_SOURCE)
        return None if source is None else reason_for_one_process(source)
    return None


def _source(submission: Submission) -> str:
    target = submission.spec.target
    return target if submission.spec.kind is TargetKind.SCRIPT else f"{target.replace('.', '/')}.py"


_RANK_VARIABLES = {"RANK", "LOCAL_RANK", "WORLD_SIZE"}
_LAUNCHING_LIBRARIES = {"accelerate", "deepspeed", "lightning", "pytorch_lightning", "ray", "rekindle", "transformers"}
_SPAWN = {"torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"}
_PROCESS = {"torch.multiprocessing.Process", "multiprocessing.Process"}
_DATA_PARALLEL = {"torch.nn.DataParallel", "torch.nn.parallel.DataParallel"}
_INIT = "torch.distributed.init_process_group"


def reason_for_one_process(source: bytes) -> str | None:
    """Why torchrun must not start this script, as the end of a sentence about it; None where that is not sure."""
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError, SystemError):
        with PARSING:
            tree = ast.parse(source)
        return _reason(tree)
    return None


def _reason(tree: ast.Module) -> str | None:
    names = dict(_imported(tree))
    packages = {name.partition(".")[0] for name in names.values()}
    if packages & _LAUNCHING_LIBRARIES or _reads_rank_variables(tree):
        return None
    calls = [(_full_name(node.func, names), node) for node in _unconditional(tree) if isinstance(node, ast.Call)]
    for name, node in calls:
        if name in _SPAWN:
            return f"it starts its own processes by {name} in line {node.lineno}"
    every = [(_full_name(node.func, names), node) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    numbered = any(
        name == _INIT and {"rank", "world_size"} <= {each.arg for each in node.keywords} for name, node in every
    )
    for name, node in every:
        if name in _PROCESS and numbered:
            return f"it starts its own processes by {name} in line {node.lineno}"
        if name in _DATA_PARALLEL and not _is_distributed(tree, names):
            return f"it uses several GPUs in one process by {name} in line {node.lineno}"
    return None


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each name that an import binds, and what it stands for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                yield (alias.asname, alias.name) if alias.asname else (first, first)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from ((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)


def _full_name(node: ast.expr, names: dict[str, str]) -> str | None:
    """``torch.multiprocessing.spawn`` for ``mp.spawn`` after ``import torch.multiprocessing as mp``."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    if isinstance(node, ast.Attribute) and (owner := _full_name(node.value, names)) is not None:
        return f"{owner}.{node.attr}"
    return None


def _unconditional(node: ast.AST) -> Iterator[ast.AST]:
    """Everything but what runs under a condition other than ``if __name__ == "__main__"``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and not _is_main_guard(child.test):
            continue
        if not isinstance(child, ast.IfExp | ast.Try):
            yield child
            yield from _unconditional(child)


def _is_main_guard(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and any(
        isinstance(each, ast.Name) and each.id == "__name__" for each in ast.walk(test)
    )


def _reads_rank_variables(tree: ast.Module) -> bool:
    """``os.environ["RANK"] = …`` only sets one."""
    stored = {
        id(node.slice) for node in ast.walk(tree) if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store)
    }
    return any(
        isinstance(node, ast.Constant) and node.value in _RANK_VARIABLES and id(node) not in stored
        for node in ast.walk(tree)
    )


def _is_distributed(tree: ast.Module, names: dict[str, str]) -> bool:
    used = {_full_name(node, names) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    return any(str(name).startswith("torch.distributed") for name in {*used, *imported, *names.values()})
