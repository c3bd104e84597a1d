"""How busy the GPUs of this machine are, as the NVIDIA driver reports it."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import pynvml

from rekindle_service.machine.devices import Slot

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """One sample of one GPU. What its driver does not report (a GPU in MIG mode has no utilisation) is None."""

    utilization_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None


def read_gpus(slots: Iterable[Slot]) -> dict[str, GpuUsage]:
    """The usage of each GPU among ``slots`` by slot name; one that the driver has lost is omitted.

    The driver's library is opened for each sample only, and not at all on a machine without GPUs.
    """
    gpus = [slot for slot in slots if slot.device == "cuda"]
    if not gpus:
        return {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    usage: dict[str, GpuUsage] = {}
    try:
        for gpu in gpus:
            with suppress(pynvml.NVMLError):
                usage[gpu.name] = _read(_handle(gpu))
    finally:
        pynvml.nvmlShutdown()
    return usage


def _handle(gpu: Slot) -> Any:
    if gpu.uuid is not None:
        return pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
    return pynvml.nvmlDeviceGetHandleByIndex(gpu.index)


def _read(handle: Any) -> GpuUsage:
    memory = _or_none(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    return GpuUsage(
        utilization_percent=_or_none(lambda: float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)),
        memory_used_bytes=None if memory is None else int(memory.used),
        memory_total_bytes=None if memory is None else int(memory.total),
        temperature_celsius=_or_none(
            lambda: float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
        ),
        power_watts=_or_none(lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000),
    )


def _or_none(query: Callable[[], T]) -> T | None:
    """What the driver answers, or None where this GPU does not support the query."""
    try:
        return query()
    except pynvml.NVMLError:
        return None
