"""This machine: its slots, the jobs that hold them, and the usage of CPU, memory, disk and GPUs."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query

from rekindle.contract.nvml import GpuReading
from rekindle.contract.states import HOLDING_SLOTS
from rekindle_service.api.dependencies import AppState, AppStateDep, ReadableBy
from rekindle_service.api.pagination import PageParamsDep, paginate
from rekindle_service.api.schemas.machine import (
    DevicePublic,
    Devices,
    DeviceUsagePublic,
    Disk,
    MachinePublic,
    MachineSample,
    Memory,
)
from rekindle_service.machine import monitor
from rekindle_service.machine.devices import Slot
from rekindle_service.store.tables import Job

router = APIRouter(tags=["devices"])

_UNKNOWN = GpuReading()


@router.get("/devices")
def list_devices(state: AppStateDep, params: PageParamsDep, readable_by: ReadableBy) -> Devices:
    """List the slots with the jobs that hold them, and the links between the GPUs."""
    holders = _holders(state)
    page = paginate(state.machine.slots, params)
    devices = [_device_public(slot, holders.get(slot.name), readable_by) for slot in page.items]
    return Devices(items=devices, next=page.next, links=list(state.machine.links))


def _holders(state: AppState) -> dict[str, Job]:
    """Jobs by the names of the slots that they hold."""
    return {name: job for job in state.store.jobs_in(HOLDING_SLOTS) for name in job.devices}


def _device_public(slot: Slot, holder: Job | None, readable_by: str | None) -> DevicePublic:
    """The job is not named where it must not be read."""
    job = _readable(holder, readable_by)
    return DevicePublic(
        **asdict(slot),
        held=holder is not None,
        title=slot.model or f"{slot.device.upper()} slot {slot.index}",
        job=None if job is None else job.id,
        job_name=None if job is None else job.name,
        job_state=None if job is None else job.state,
    )


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
        devices=[
            _usage_public(slot, now, _readable(holders.get(slot.name), readable_by)) for slot in state.machine.slots
        ],
        history=[_sample_public(sample) for sample in monitor.evenly_spaced(history, max_points)],
    )


def _readable(job: Job | None, readable_by: str | None) -> Job | None:
    return job if job is not None and readable_by in (None, job.owner) else None


def _usage_public(slot: Slot, now: monitor.MachineSample, holder: Job | None) -> DeviceUsagePublic:
    usage = asdict(now.gpus.get(slot.name, _UNKNOWN))
    usage["memory_total_bytes"] = usage["memory_total_bytes"] or slot.memory
    held_by = None if holder is None else holder.id
    return DeviceUsagePublic(**usage, name=slot.name, kind=slot.device, model=slot.model, held_by=held_by)


def _sample_public(sample: monitor.MachineSample) -> MachineSample:
    devices = [{"name": name, **asdict(gpu)} for name, gpu in sample.gpus.items()]
    return MachineSample.model_validate(
        {**asdict(sample), "disk_free_bytes": sample.home.free_bytes, "devices": devices}
    )
