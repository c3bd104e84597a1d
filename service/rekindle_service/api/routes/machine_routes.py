"""This machine: its slots, the jobs that hold them, and the usage of CPU, memory, disk and GPUs."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request

from rekindle.contract.nvidia_driver import GpuReading
from rekindle_service.api.auth import AdminDep
from rekindle_service.api.dependencies import AppState, AppStateDep, ReadableBy
from rekindle_service.api.pagination import PageParamsDep, paginate
from rekindle_service.api.problems import ApiError
from rekindle_service.api.routes.job_routes import excluded_nodes
from rekindle_service.machine import monitor
from rekindle_service.machine.slots import Slot
from rekindle_service.schemas.machine_json import (
    DeviceDisable,
    DevicePublic,
    Devices,
    DeviceUsagePublic,
    Disabled,
    Disk,
    MachinePublic,
    MachineSample,
    Memory,
)
from rekindle_service.store.tables import Job

router = APIRouter(tags=["devices"])

_UNKNOWN = GpuReading()


def _find_slot(
    state: AppStateDep, name: Annotated[str, Path(max_length=64, description="Name of the slot, as in `cuda:0`")]
) -> Slot:
    """Raises ApiError (404)."""
    slot = state.devices.slot(name)
    if slot is None:
        names = ", ".join(each.name for each in state.machine.slots[:16])
        raise ApiError(404, "unknown-device", f"this machine has no slot {name!r}; it has {names}")
    return slot


SlotDep = Annotated[Slot, Depends(_find_slot)]


@router.get("/devices")
def list_devices(state: AppStateDep, params: PageParamsDep, readable_by: ReadableBy) -> Devices:
    """List the slots with the jobs that hold them, and the links between the GPUs."""
    page = paginate(state.machine.slots, params)
    devices = _devices_public(state, page.items, readable_by)
    links, nodes = list(state.machine.links), excluded_nodes(state.store.holding())
    return Devices(items=devices, next=page.next, links=links, excluded_nodes=nodes)


@router.post("/devices/{name}/disable")
def disable_device(
    state: AppStateDep, identity: AdminDep, request: Request, slot: SlotDep, body: DeviceDisable
) -> DevicePublic:
    """Disable a slot: no job gets it until it is enabled, and jobs that run on it leave it. Administrators only."""
    request.scope["state"]["audit_detail"] = f"{slot.name}: {body.reason}"
    reason = f"disabled by {identity.person}" + (f": {body.reason}" if body.reason else "")
    state.devices.disable(slot, reason, identity.person)
    return _devices_public(state, [slot], None)[0]


@router.post("/devices/{name}/enable")
def enable_device(state: AppStateDep, identity: AdminDep, request: Request, slot: SlotDep) -> DevicePublic:
    """Enable a slot that was disabled by a person or after a fault. Administrators only."""
    request.scope["state"]["audit_detail"] = slot.name
    state.devices.enable(slot, identity.person)
    return _devices_public(state, [slot], None)[0]


def _holders(state: AppState) -> dict[str, list[Job]]:
    """Jobs by the names of the slots that they hold."""
    holders: dict[str, list[Job]] = {}
    for job in state.store.holding():
        for name in job.devices:
            holders.setdefault(name, []).append(job)
    return holders


def _devices_public(state: AppState, slots: Iterable[Slot], readable_by: str | None) -> list[DevicePublic]:
    """Jobs are not named where they must not be read."""
    holders, unusable, rows = _holders(state), state.devices.health.unusable(), state.devices.rows()
    devices = []
    for slot in slots:
        held_by, row = holders.get(slot.name, []), rows.get(slot.name)
        jobs = _readable(held_by, readable_by)
        job = jobs[0] if jobs else None
        devices.append(
            DevicePublic(
                **asdict(slot),
                held=bool(held_by),
                title=slot.model or f"{slot.device.upper()} slot {slot.index}",
                job=None if job is None else job.id,
                job_name=None if job is None else job.name,
                job_state=None if job is None else job.state,
                jobs=[each.id for each in jobs],
                free_share=round(max(0.0, 1.0 - sum(each.spec.gpu_share for each in held_by)), 6),
                unusable=unusable.get(slot.name),
                disabled=Disabled(row.reason, row.at, row.by) if row is not None and row.reason else None,
                users=list(state.devices.health.users(slot.name)),
            )
        )
    return devices


@router.get("/machine")
def read_machine(
    state: AppStateDep,
    readable_by: ReadableBy,
    max_points: Annotated[int, Query(ge=1, le=1440, description="Maximum number of samples in `history`")] = 360,
) -> MachinePublic:
    """Get the usage of CPU, memory, disk and devices, now and since the server was started.

    A sample is taken every five seconds. The history is kept in memory: it starts with the server, and the interval
    between samples older than two hours grows.
    """
    history = state.monitor.history()
    now, holders = history[-1], _holders(state)
    return MachinePublic(
        at=now.at,
        cpu_percent=now.cpu_percent,
        cores=state.monitor.cores,
        memory=Memory(used_bytes=now.memory_used_bytes, total_bytes=now.memory_total_bytes),
        disk=Disk.model_validate(now),
        isolation=state.isolation,
        devices=[
            _usage_public(slot, now, next(iter(_readable(holders.get(slot.name, []), readable_by)), None))
            for slot in state.machine.slots
        ],
        history=[_sample_public(sample) for sample in monitor.evenly_spaced(history, max_points)],
    )


def _readable(jobs: Iterable[Job], readable_by: str | None) -> list[Job]:
    return [job for job in jobs if readable_by in (None, job.owner)]


def _usage_public(slot: Slot, now: monitor.MonitorSample, holder: Job | None) -> DeviceUsagePublic:
    usage = asdict(now.gpus.get(slot.name, _UNKNOWN))
    usage["memory_total_bytes"] = usage["memory_total_bytes"] or slot.memory
    held_by = None if holder is None else holder.id
    return DeviceUsagePublic(**usage, name=slot.name, kind=slot.device, model=slot.model, held_by=held_by)


def _sample_public(sample: monitor.MonitorSample) -> MachineSample:
    devices = [{"name": name, **asdict(gpu)} for name, gpu in sample.gpus.items()]
    return MachineSample.model_validate(
        {**asdict(sample), "disk_free_bytes": sample.home.free_bytes, "devices": devices}
    )
