"""How a job is started and on which devices, where its request leaves that open; and what cannot be on this machine."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rekindle.contract.job import JobSpec, LaunchMode, LinkRule, TargetKind
from rekindle.contract.safe_open import read_small
from rekindle.recipes.catalog import RECIPES
from rekindle_service.jobs.launch_detection import reason_for_one_process
from rekindle_service.jobs.submission import FieldError, Submission
from rekindle_service.machine.devices import Machine, Slot, choose_slots, visible_gpus

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


def place(submission: Submission, machine: Machine) -> Placement:
    """Fill in what the request leaves open. The number of ranks, too, where the request names devices and no number."""
    spec = submission.spec
    if spec.is_cluster:
        return _place_on_cluster(submission)
    device, error = _device(spec, machine)
    env = {name: value for name, value in spec.env.items() if name != VISIBLE or error is not None}
    spec = replace(spec, device=device, env=env)
    reason = _reason_for_one_process(submission) if spec.launch is LaunchMode.AUTO else None
    if spec.launch is LaunchMode.AUTO:
        spec = replace(spec, launch=LaunchMode.TORCHRUN if reason is None else LaunchMode.PROCESS)
    if not submission.has_size and spec.device_names:
        count = len(spec.device_names)
        size: dict[str, Any] = (
            {"devices_per_rank": count} if spec.launch is LaunchMode.PROCESS else dict.fromkeys(_RANKS, count)
        )
        spec = replace(spec, **size)
    return Placement(spec, reason, error)


def _place_on_cluster(submission: Submission) -> Placement:
    """Slurm chooses the devices; of which kind they are, ``Submitter`` has asked it."""
    spec = submission.spec
    reason = _reason_for_one_process(submission) if spec.launch is LaunchMode.AUTO else None
    if spec.launch is LaunchMode.AUTO:
        spec = replace(spec, launch=LaunchMode.TORCHRUN if reason is None else LaunchMode.PROCESS)
    return Placement(spec if spec.device != "auto" else replace(spec, device="cpu"), reason)


def placement_errors(placement: Placement, machine: Machine) -> Iterator[FieldError]:
    """The rules of ranks, devices and launch that the job violates."""
    spec = placement.spec
    if placement.error is not None:
        yield placement.error
    if not 1 <= spec.min_ranks <= spec.max_ranks:
        yield FieldError("ranks", "must be at least 1, and min at most max", _ranks(spec))
    elif spec.launch is LaunchMode.PROCESS and spec.max_ranks > 1:
        yield _several_ranks(spec, placement.reason)
    yield from _share_rules(spec)
    if spec.is_cluster:
        return
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


def _share_rules(spec: JobSpec) -> Iterator[FieldError]:
    if spec.gpu_share < 1 and spec.is_cluster:
        yield FieldError("gpu_share", "is not possible on Slurm, which gives GPUs to jobs", spec.gpu_share, "omit it")
    elif spec.gpu_share < 1 and spec.device_kind != "cuda":
        rule = f"shares GPUs, but the device of the job is {spec.device}"
        yield FieldError("gpu_share", rule, spec.gpu_share, "omit it, or give cuda as device")


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
    """Those of ``slots`` that the job may get."""
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
