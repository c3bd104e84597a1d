"""Fault-tolerant training under torchrun: import what a script needs from here.

``import rekindle`` alone loads nothing, above all not torch: the service imports the contract through it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rekindle.contract.job import SnapshotPolicy as SnapshotPolicy
    from rekindle.training.data.sampler import ElasticSampler as ElasticSampler
    from rekindle.training.deterministic.deterministic_elastic import DeterministicElastic as DeterministicElastic
    from rekindle.training.drain import Drained as Drained
    from rekindle.training.non_finite import NonFiniteError as NonFiniteError
    from rekindle.training.reporting.reporter import report as report
    from rekindle.training.run import Run as Run
    from rekindle.training.snapshots.engine.snapshots import Snapshots as Snapshots
    from rekindle.training.snapshots.engine.writer import SnapshotError as SnapshotError
    from rekindle.training.snapshots.engine.writer import StaleGenerationError as StaleGenerationError
    from rekindle.training.strategies.strategy import DDPStrategy as DDPStrategy
    from rekindle.training.strategies.strategy import NoStrategy as NoStrategy
    from rekindle.training.strategies.strategy import ShardedStrategy as ShardedStrategy

_MODULES = {
    "DDPStrategy": "rekindle.training.strategies.strategy",
    "DeterministicElastic": "rekindle.training.deterministic.deterministic_elastic",
    "Drained": "rekindle.training.drain",
    "ElasticSampler": "rekindle.training.data.sampler",
    "NoStrategy": "rekindle.training.strategies.strategy",
    "NonFiniteError": "rekindle.training.non_finite",
    "Run": "rekindle.training.run",
    "ShardedStrategy": "rekindle.training.strategies.strategy",
    "SnapshotError": "rekindle.training.snapshots.engine.writer",
    "SnapshotPolicy": "rekindle.contract.job",
    "Snapshots": "rekindle.training.snapshots.engine.snapshots",
    "StaleGenerationError": "rekindle.training.snapshots.engine.writer",
    "report": "rekindle.training.reporting.reporter",
}
__all__ = list(_MODULES)  # one list of the names


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(_MODULES)}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
