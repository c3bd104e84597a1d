"""JSON of this machine, its slots and the health of the server. Percentages run from 0 to 100; null is unknown."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, StringConstraints

from rekindle.contract.nvml import GpuReading
from rekindle_service.api.pagination import Page
from rekindle_service.api.schemas.common import ResponseModel, Timestamp
from rekindle_service.api.schemas.requests import STRICT
from rekindle_service.machine.devices import Link, Slot
from rekindle_service.machine.health import DeviceUser
from rekindle_service.machine.monitor import Space


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePublic(Slot):
    """A slot, room for one rank; `job` is the id of the job that holds it, `memory` is in bytes.

    A slot that is `held` without a `job` is held by a job that you may not read. Several jobs may share a GPU: `jobs`
    are all that you may read, `job` is the first, and `free_share` is what is left for others, 0 to 1. `unusable` says
    why no job gets the slot now: since it was put aside (`disabled`), or since processes of no job use it (`users`).
    """

    title: str
    held: bool
    job: str | None
    job_name: str | None
    job_state: str | None
    jobs: list[str]
    free_share: float
    unusable: str | None
    disabled: "Disabled | None"
    users: list[DeviceUser]


@dataclass(frozen=True, slots=True)
class Disabled:
    """A device that was put aside by a person, or by rekindle itself, where `by` is null."""

    reason: str
    at: Timestamp
    by: str | None


class DeviceDisable(BaseModel):
    """Why jobs are to use the device no longer."""

    model_config = STRICT

    reason: Annotated[str, StringConstraints(max_length=500, pattern=r"^[^\x00-\x1f\x7f]*$")] = ""


class Devices(Page[DevicePublic]):
    """Page of slots, with the links between the GPUs by the names of `nvidia-smi topo`."""

    links: list[Link]


class Memory(BaseModel):
    """Main memory; `used_bytes` is what is not available to programs."""

    used_bytes: int
    total_bytes: int


class Disk(ResponseModel):
    """Space on the disk of all runs, and in shared memory, where ranks keep copies of snapshots."""

    home: Space
    shared_memory: Space | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUsagePublic(GpuReading):
    """A slot and its usage, which is known for GPUs only; `held_by` is the id of the job that holds it."""

    name: str
    kind: str
    model: str | None
    held_by: str | None


class GpuSample(BaseModel):
    """Earlier usage of a GPU."""

    name: str
    utilization_percent: float | None
    memory_used_bytes: int | None


class MachineSample(BaseModel):
    """An earlier sample; `devices` are the GPUs."""

    at: Timestamp
    cpu_percent: float | None
    memory_used_bytes: int
    disk_free_bytes: int
    devices: list[GpuSample]


class MachinePublic(BaseModel):
    """The latest sample, taken `at`; `history` has the earlier ones and, last, the latest one.

    `cpu_percent` is the share of `cores` (those that the server may use) since the previous sample, null in the first.
    `isolation`: one sentence that says from what jobs are kept apart.
    """

    at: Timestamp
    cpu_percent: float | None
    cores: int
    memory: Memory
    disk: Disk
    isolation: str
    devices: list[DeviceUsagePublic]
    history: list[MachineSample]


class Health(BaseModel):
    """The server responds."""

    status: Literal["ok"]
    version: str


class Readiness(BaseModel):
    """Whether the server can accept jobs; `checks` has `ok` or what is wrong, by check.

    `warnings` is what needs attention but keeps no job waiting.
    """

    status: Literal["ready", "not ready"]
    checks: dict[str, str]
    warnings: list[str] = []
