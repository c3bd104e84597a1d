"""Fault-tolerant training under torchrun: import what a script needs from here.

``import rekindle`` alone loads nothing, above all not torch: the service imports the contract through it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rekindle.contract.job import SnapshotPolicy
    from rekindle.training.deterministic_elastic import DeterministicElastic
    from rekindle.training.drain import Drained
    from rekindle.training.non_finite import NonFiniteError
    from rekindle.training.reporting import report
    from rekindle.training.run import Run
    from rekindle.training.sampler import ElasticSampler
    from rekindle.training.snapshot_writer import SnapshotError, StaleGenerationError
    from rekindle.training.snapshots import Snapshots

__all__ = [
    "DeterministicElastic",
    "Drained",
    "ElasticSampler",
    "NonFiniteError",
    "Run",
    "SnapshotError",
    "SnapshotPolicy",
    "Snapshots",
    "StaleGenerationError",
    "report",
]

_HOMES = {
    "DeterministicElastic": "rekindle.training.deterministic_elastic",
    "Drained": "rekindle.training.drain",
    "ElasticSampler": "rekindle.training.sampler",
    "NonFiniteError": "rekindle.training.non_finite",
    "Run": "rekindle.training.run",
    "SnapshotError": "rekindle.training.snapshot_writer",
    "SnapshotPolicy": "rekindle.contract.job",
    "Snapshots": "rekindle.training.snapshots",
    "StaleGenerationError": "rekindle.training.snapshot_writer",
    "report": "rekindle.training.reporting",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
