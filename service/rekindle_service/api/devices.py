"""The slots of this machine and who holds them."""

from fastapi import APIRouter

from rekindle.contract.states import HOLDING_SLOTS
from rekindle_service.api.pieces import WantedPiece
from rekindle_service.api.schemas import DevicePublic, Devices, LinkPublic
from rekindle_service.api.services import Serving
from rekindle_service.machine.devices import Slot
from rekindle_service.store.tables import Job

router = APIRouter(tags=["devices"])


@router.get("/devices")
def list_devices(services: Serving, piece: WantedPiece) -> Devices:
    """Every slot with the job that holds it, and how the GPUs reach each other."""
    holders = {name: job for job in services.store.jobs_in(HOLDING_SLOTS) for name in job.devices}
    slots, following = piece.of(services.machine.slots)
    items = [_device_public(slot, holders.get(slot.name)) for slot in slots]
    links = [LinkPublic(first=link.first, second=link.second, kind=link.kind) for link in services.machine.links]
    return Devices(items=items, next=following, links=links)


def _device_public(slot: Slot, job: Job | None) -> DevicePublic:
    title = slot.model or f"{slot.device.upper()} slot {slot.index}"
    return DevicePublic(
        name=slot.name,
        device=slot.device,
        index=slot.index,
        title=title,
        memory=slot.memory,
        uuid=slot.uuid,
        job=None if job is None else job.id,
        job_name=None if job is None else job.name,
        job_state=None if job is None else job.state,
    )
