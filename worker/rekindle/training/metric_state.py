"""Saving torchmetrics, whose states are left out of ``state_dict`` by default and which differ from rank to rank."""

from collections.abc import Mapping
from typing import Any

import torch

from rekindle.training.data_loading import to_device
from rekindle.training.reporting import reporter

Metrics = Any  # torchmetrics.Metric or MetricCollection: a script without metrics needs no torchmetrics


def prepare(metrics: Metrics, device: torch.device) -> None:
    """Make the metrics part of ``state_dict`` and bring them to ``device``."""
    for metric in _members(metrics).values():
        metric.persistent(True)
        metric.to(device)


def capture(metrics: Metrics) -> dict[str, Any]:
    """The state of this rank's metrics."""
    return {
        name: {"state": metric.state_dict(), "updates": metric.update_count}
        for name, metric in _members(metrics).items()
    }


def restore(metrics: Metrics, states: list[dict[str, Any]], device: torch.device) -> None:
    """Take over the ``states`` of one or several former ranks, so that each sample counts once."""
    for name, metric in _members(metrics).items():
        metric.reset()
        for index, captured in enumerate(to_device([state[name] for state in states], device)):
            if index == 0:
                metric.load_state_dict(captured["state"])
            else:
                _merge(name, metric, captured["state"])
            metric._update_count += captured["updates"]


def _merge(name: str, metric: Any, state: dict[str, Any]) -> None:
    try:
        metric.merge_state(state)
    except RuntimeError as error:
        metric.reset()
        reporter().warn(f"metric {name} starts anew: its states of several ranks cannot be merged ({error})")


def _members(metrics: Metrics) -> dict[str, Any]:
    if metrics is None:
        return {}
    if isinstance(metrics, Mapping) or hasattr(metrics, "items"):
        return dict(metrics.items())
    return {type(metrics).__name__: metrics}
