"""Fault-tolerant training under torchrun: import what a script needs from here.

``import rekindle`` alone loads nothing, above all not torch: the service imports the contract through it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rekindle.contract import __version__ as __version__

if TYPE_CHECKING:
    from rekindle.contract.job_options import SnapshotPolicy as SnapshotPolicy
    from rekindle.training.deterministic_elastic import DeterministicElastic as DeterministicElastic
    from rekindle.training.drain import Drained as Drained
    from rekindle.training.reporter import report as report
    from rekindle.training.run import Run as Run
    from rekindle.training.sampler import ElasticSampler as ElasticSampler
    from rekindle.training.sharded_strategy import ShardedStrategy as ShardedStrategy
    from rekindle.training.snapshots.training_snapshots import Snapshots as Snapshots
    from rekindle.training.snapshots.writer import SnapshotError as SnapshotError
    from rekindle.training.snapshots.writer import StaleGenerationError as StaleGenerationError
    from rekindle.training.step_boundary import NonFiniteError as NonFiniteError
    from rekindle.training.step_digests import DivergenceError as DivergenceError
    from rekindle.training.strategy import DDPStrategy as DDPStrategy
    from rekindle.training.strategy import NoStrategy as NoStrategy

_MODULES = {
    "DDPStrategy": "rekindle.training.strategy",
    "DeterministicElastic": "rekindle.training.deterministic_elastic",
    "DivergenceError": "rekindle.training.step_digests",
    "Drained": "rekindle.training.drain",
    "ElasticSampler": "rekindle.training.sampler",
    "NoStrategy": "rekindle.training.strategy",
    "NonFiniteError": "rekindle.training.step_boundary",
    "Run": "rekindle.training.run",
    "ShardedStrategy": "rekindle.training.sharded_strategy",
    "SnapshotError": "rekindle.training.snapshots.writer",
    "SnapshotPolicy": "rekindle.contract.job_options",
    "Snapshots": "rekindle.training.snapshots.training_snapshots",
    "StaleGenerationError": "rekindle.training.snapshots.writer",
    "report": "rekindle.training.reporter",
}
__all__ = list(_MODULES)  # one list of the names


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {', '.join(_MODULES)}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
