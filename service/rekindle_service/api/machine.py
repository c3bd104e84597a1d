"""How busy this machine is: processor, memory, disk and devices, now and since the server was started."""

from typing import Annotated

from fastapi import APIRouter, Query

from rekindle.contract.states import HOLDING_SLOTS
from rekindle_service.api.machine_schemas import (
    DeviceUsage,
    Disk,
    GpuPast,
    MachinePast,
    MachinePublic,
    Memory,
)
from rekindle_service.api.services import Serving
from rekindle_service.machine.devices import Slot
from rekindle_service.machine.gpu_usage import GpuUsage
from rekindle_service.machine.monitor import MachineSample, evenly_spaced

router = APIRouter(tags=["devices"])

_UNKNOWN = GpuUsage()


@router.get("/machine")
def read_machine(
    services: Serving,
    max_points: Annotated[int, Query(ge=1, le=1440, description="Most points of `history`")] = 360,
) -> MachinePublic:
    """How busy processor, memory, disk and devices are, and how they were since the server was started.

    A look is taken every five seconds. The history is kept in memory: it begins anew with the server, and what lies
    longer than two hours ago is kept ever more coarsely.
    """
    history = services.watch.history()
    now = history[-1]
    holders = {name: job.id for job in services.store.jobs_in(HOLDING_SLOTS) for name in job.devices}
    return MachinePublic(
        at=now.at,
        cpu_percent=now.cpu_percent,
        cores=services.watch.cores,
        memory=Memory(used_bytes=now.memory_used_bytes, total_bytes=now.memory_total_bytes),
        disk=Disk.model_validate(now),
        devices=[_device(slot, now, holders.get(slot.name)) for slot in services.machine.slots],
        history=[_past(sample) for sample in evenly_spaced(history, max_points)],
    )


def _device(slot: Slot, now: MachineSample, job_id: str | None) -> DeviceUsage:
    usage = now.gpus.get(slot.name, _UNKNOWN)
    return DeviceUsage(
        name=slot.name,
        kind=slot.device,
        model=slot.model,
        utilization_percent=usage.utilization_percent,
        memory_used_bytes=usage.memory_used_bytes,
        memory_total_bytes=usage.memory_total_bytes or slot.memory,
        temperature_celsius=usage.temperature_celsius,
        power_watts=usage.power_watts,
        held_by=job_id,
    )


def _past(sample: MachineSample) -> MachinePast:
    gpus = [
        GpuPast(name=name, utilization_percent=gpu.utilization_percent, memory_used_bytes=gpu.memory_used_bytes)
        for name, gpu in sample.gpus.items()
    ]
    return MachinePast(
        at=sample.at,
        cpu_percent=sample.cpu_percent,
        memory_used_bytes=sample.memory_used_bytes,
        disk_free_bytes=sample.disk_free_bytes,
        devices=gpus,
    )
