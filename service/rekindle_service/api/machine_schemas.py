"""This machine as JSON. Percentages run from 0 to 100; what nobody tells is null."""

from pydantic import BaseModel, ConfigDict

from rekindle_service.api.schemas import Moment


class Memory(BaseModel):
    """Main memory; used is what no program could be given at once."""

    used_bytes: int
    total_bytes: int


class SpacePublic(BaseModel):
    model_config = ConfigDict(from_attributes=True)

    free_bytes: int
    total_bytes: int


class Disk(BaseModel):
    """Room where jobs are kept, and in shared memory, where ranks keep copies of snapshots."""

    model_config = ConfigDict(from_attributes=True)

    home: SpacePublic
    shared_memory: SpacePublic | None


class DeviceUsage(BaseModel):
    """A slot. ``held_by``: id of the job that it is given to. Only GPUs have figures; a CPU slot is room for a rank."""

    name: str
    kind: str
    model: str | None
    utilization_percent: float | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    temperature_celsius: float | None
    power_watts: float | None
    held_by: str | None


class GpuPast(BaseModel):
    name: str
    utilization_percent: float | None
    memory_used_bytes: int | None


class MachinePast(BaseModel):
    """An earlier look; ``devices`` are the GPUs."""

    at: Moment
    cpu_percent: float | None
    memory_used_bytes: int
    disk_free_bytes: int
    devices: list[GpuPast]


class MachinePublic(BaseModel):
    """The latest look (``at``) and those before it, oldest first, itself the last.

    ``cpu_percent`` is the share of ``cores``, those that the server may use, since the look before; null on the first.
    """

    at: Moment
    cpu_percent: float | None
    cores: int
    memory: Memory
    disk: Disk
    devices: list[DeviceUsage]
    history: list[MachinePast]
