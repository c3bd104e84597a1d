"""JSON of this machine, its slots and the health of the server."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from rekindle.contract.field_texts import Described
from rekindle.contract.nvidia_driver import GpuReading
from rekindle_service.machine.health import DeviceUser
from rekindle_service.machine.monitor import Space
from rekindle_service.machine.slots import Link, Slot
from rekindle_service.schemas.fields import ApiModel, Page, RequestModel, Timestamp, Utf8Str


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePublic(Slot):
    """A slot: room for one rank. A slot that is `held` without a `job` is held by a job that you may not read."""

    title: str
    """Name of the slot for people, such as the model of the GPU."""
    held: bool
    """Whether a job holds the slot."""
    job: str | None
    """Id of the job that holds it, of several the first; null where none does that you may read."""
    job_name: str | None
    """Name of that job."""
    job_state: str | None
    """State of that job."""
    jobs: list[str]
    """Ids of all jobs that hold a part of it and that you may read: several jobs may share a GPU."""
    free_share: float
    """Fraction of the slot that is left for other jobs, 0 to 1."""
    unusable: str | None
    """Why no job gets the slot now, in a sentence; null where it is usable."""
    disabled: "Disabled | None"
    """Who disabled it, when and why; null where it is enabled."""
    users: list[DeviceUser]
    """Processes that use the GPU and belong to no job."""


@dataclass(frozen=True, slots=True)
class Disabled(Described):
    """A device that was disabled by a person, or by rekindle itself."""

    reason: str
    """Why, in a sentence."""
    at: Timestamp
    """Since when."""
    by: str | None
    """Person who disabled it; null: rekindle itself, after a fault."""


class DeviceDisable(RequestModel):
    """Why jobs are not to use the device."""

    reason: Annotated[str, StringConstraints(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")] = Field(
        "", examples=["fan is broken"]
    )
    """Text that people read with the device, at most 500 characters."""


class Devices(Page[DevicePublic]):
    """Page of slots."""

    links: list[Link]
    """Links between the GPUs."""
    excluded_nodes: dict[Utf8Str, Utf8Str]
    """Nodes of Slurm on which unfinished jobs could not run lately, each with the reason: no such job gets them now."""


class Memory(ApiModel):
    """Main memory of the machine."""

    used_bytes: int
    """Bytes that are not available to programs."""
    total_bytes: int
    """Bytes in total."""


class Disk(ApiModel):
    """Space on disk."""

    home: Space
    """File system of all runs."""
    shared_memory: Space | None
    """Shared memory, where ranks keep copies of snapshots; null on a machine without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUsagePublic(GpuReading):
    """A slot and its usage, which is known for GPUs only."""

    name: str
    """Name of the slot, such as `cuda:0`."""
    kind: str
    """`cuda` or `cpu`."""
    model: str | None
    """Model of the GPU; null for a CPU slot."""
    held_by: str | None
    """Id of the job that holds it; null where none does that you may read."""


class GpuSample(ApiModel):
    """Earlier usage of a GPU."""

    name: str
    """Name of the slot."""
    utilization_percent: float | None
    """Time in which the GPU computed, in percent, 0 to 100; null where not known."""
    memory_used_bytes: int | None
    """Used memory in bytes; null where not known."""


class MachineSample(ApiModel):
    """An earlier sample."""

    at: Timestamp
    """When it was taken."""
    cpu_percent: float | None
    """Use of the cores in percent, 0 to 100 for all of them; null in the first sample."""
    memory_used_bytes: int
    """Used main memory in bytes."""
    disk_free_bytes: int
    """Free bytes on the disk of all runs."""
    devices: list[GpuSample]
    """The GPUs."""


class MachinePublic(ApiModel):
    """The latest sample and the earlier ones."""

    at: Timestamp
    """When the latest sample was taken."""
    cpu_percent: float | None
    """Use of `cores` since the previous sample in percent, 0 to 100 for all of them; null in the first sample."""
    cores: int
    """Number of cores that the server may use."""
    memory: Memory
    """Main memory."""
    disk: Disk
    """Space on disk and in shared memory."""
    isolation: str
    """How jobs are isolated from each other and from the machine, in a sentence."""
    devices: list[DeviceUsagePublic]
    """Slots with their usage."""
    history: list[MachineSample]
    """Earlier samples, oldest first, and last the latest one."""


class Health(ApiModel):
    """The server responds."""

    status: Literal["ok"]
    """Always `ok`."""
    version: str
    """Version of rekindle."""


class Readiness(ApiModel):
    """Whether the server can accept jobs."""

    status: Literal["ready", "not ready"]
    """`ready` if all checks are `ok`."""
    checks: dict[str, str]
    """By check: `ok`, or what is wrong."""
    warnings: list[str] = []
    """What needs attention but keeps no job waiting, in sentences."""
