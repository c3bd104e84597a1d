"""The values of ``run.log``: kept on the device, averaged over the ranks a few times a second."""

import time
from typing import Any

import torch

from rekindle.contract.run_dir.rank_records import MetricPoint
from rekindle.training.process_group import World

AVERAGE_INTERVAL = 0.5  # seconds


class MetricBuffer:
    """One rank's values since the last ``average``; ``add`` neither communicates nor waits for a device."""

    def __init__(self) -> None:
        self._logged: list[tuple[MetricPoint, int, dict[str, torch.Tensor]]] = []
        self._averaged_at = 0.0

    def due(self, now: float) -> bool:
        """Whether it is time for ``average``; ``now`` in seconds of CLOCK_MONOTONIC."""
        return now - self._averaged_at >= AVERAGE_INTERVAL

    def add(self, step: int, epoch: int | None, weight: int, values: dict[str, Any]) -> None:
        """``values`` are numbers or tensors of one element; ``weight`` is the number of samples they are the mean of.

        Raises TypeError or ValueError for anything else, naming it.
        """
        scalars = {name: _scalar(name, value) for name, value in values.items()}
        self._logged.append((MetricPoint(step, epoch, time.time(), {}), weight, scalars))

    def average(self, world: World) -> list[MetricPoint]:
        """The means over the ranks that logged a value for a step, on every rank. All ranks must call it."""
        numbers = iter(_to_floats([value for _, _, values in self._logged for value in values.values()]))
        own = [(point, weight, {name: next(numbers) for name in values}) for point, weight, values in self._logged]
        self._logged = []
        self._averaged_at = time.monotonic()
        return weighted_means([entry for entries in world.gather(own) for entry in entries])


def weighted_means(entries: list[tuple[MetricPoint, int, dict[str, float]]]) -> list[MetricPoint]:
    """By step and name, in the order of the steps; ``entries`` are points, weights and values."""
    points: dict[int, MetricPoint] = {}
    sums: dict[tuple[int, str], tuple[float, int]] = {}
    for point, weight, values in entries:
        points.setdefault(point.step, point)
        for name, value in values.items():
            total, weights = sums.get((point.step, name), (0.0, 0))
            sums[point.step, name] = (total + value * weight, weights + weight)
    for (step, name), (total, weights) in sums.items():
        points[step].values[name] = total / weights
    return [points[step] for step in sorted(points)]


def _scalar(name: str, value: Any) -> torch.Tensor:
    tensor = value.detach() if isinstance(value, torch.Tensor) else torch.tensor(float(value), dtype=torch.float64)
    if tensor.numel() != 1:
        raise ValueError(f"log({name}=…): one number is needed, not a tensor of shape {tuple(tensor.shape)}")
    return tensor.reshape(()).to(torch.float64, copy=True)


def _to_floats(values: list[torch.Tensor]) -> list[float]:
    """One transfer for all values that are on a GPU."""
    on_device = [value for value in values if value.device.type != "cpu"]
    moved = iter(torch.stack(on_device).tolist() if on_device else [])
    return [float(value) if value.device.type == "cpu" else next(moved) for value in values]
