"""All that makes a training what it is at one step: what the ranks share, and what each has for itself."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from rekindle.training import rng
from rekindle.training.data_loading import to_device
from rekindle.training.reporter import reporter
from rekindle.training.rng import derived_seed
from rekindle.training.sampler import TrainingProgress
from rekindle.training.snapshots.loader import RestoredSnapshot
from rekindle.training.snapshots.state_files import read_tensors

_PROGRESS = "progress"  # in the shared state, next to the parts
_HINT = "give Run the parts it was saved with, or start in a new snapshot directory"

Metrics = Any
"""A torchmetrics.Metric, a MetricCollection or None: a script without metrics needs no torchmetrics."""


class Stateful(Protocol):
    """What can be saved: torch's own protocol, which optimizers, schedulers, modules and metrics follow."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any: ...


@dataclass(slots=True)
class TrainingState:
    """Captures the parts of a training, and restores them."""

    module: nn.Module
    model: Stateful  # what is saved and loaded for the module
    shared: dict[str, Stateful]  # the same on every rank: saved once
    metrics: Metrics
    progress: TrainingProgress
    seed: int
    stream: int  # of random numbers: the rank, unless several ranks are to draw the same
    device: torch.device
    _restored: tuple[dict[str, Any], list[dict[str, Any]]] | None = None  # rng, metrics of each former rank

    def __post_init__(self) -> None:
        for name, part in self.shared.items():
            for method in ("state_dict", "load_state_dict"):
                if not callable(getattr(part, method, None)):
                    raise TypeError(
                        f"{name} must have state_dict and load_state_dict to be saved, as torch's optimizers have; "
                        f"a {type(part).__name__} has no {method}: add it, or do not give {name} to Run"
                    )

    def capture(self, *, shared: bool) -> tuple[dict[str, Any], dict[str, Any]]:
        """Capture what all ranks share, if ``shared``, and what this rank saves for itself."""
        shared_state = self.capture_shared() if shared else {}
        return shared_state, {"rng": rng.capture(self.device), "metrics": capture_metrics(self.metrics)}

    def capture_shared(self) -> dict[str, Any]:
        states = {name: part.state_dict() for name, part in self._parts.items()}
        return {**states, _PROGRESS: self.progress.state_dict()}

    def restore_or_begin(self, restored: RestoredSnapshot | None, world_size: int, start_from: Path | None) -> bool:
        """Restore, or begin from ``start_from`` or a seed; True where the disk has all that the training resumes from.

        Raises KeyError or ValueError, naming the part, where the snapshot lacks one, has one more, or does not fit.
        """
        if restored is not None:
            self._restore_parts(restored, world_size)
            self.progress.restore(restored.step, restored.shared_state[_PROGRESS])
            return restored.from_disk
        if start_from is not None:
            self._start_from(start_from)
        rng.seed_all(derived_seed(self.seed, 0, self.stream))
        return True

    def restore_rank_state(self) -> None:
        """Set this rank's own state once more, whatever the script has done to it since ``restore_or_begin``.

        Code before the resumed batch runs again after a restart: it may draw random numbers and reset a metric. Does
        nothing in a first start, nor a second time.
        """
        if self._restored is not None:
            self._apply(*self._restored)
            self._restored = None

    def roll_back(self, restored: RestoredSnapshot, world_size: int) -> None:
        """Restore while the training runs, which continues with the data that come next.

        Metrics of another epoch mean nothing here: they are reset.
        """
        self._restore_parts(restored, world_size)
        self._restored = None
        if restored.shared_state[_PROGRESS]["epoch"] != self.progress.epoch:
            restore_metrics(self.metrics, [], self.device)
        self.progress.step = restored.step

    def find_non_finite(self, shared: dict[str, Any]) -> str | None:
        """Find a reason not to keep the state ``shared``: weights that are not finite would end every attempt.

        Checks the copy, so that training need not wait.
        """
        buffers = {name for name, _ in self.module.named_buffers()}
        for name, item in shared.get("model", {}).items():
            if name in buffers or not isinstance(item, torch.Tensor) or item.is_meta or not item.is_floating_point():
                continue
            if not bool(torch.isfinite(item).all()):
                return f"parameter {name} is not finite"
        return None

    @property
    def _parts(self) -> dict[str, Stateful]:
        return {"model": self.model, **self.shared}

    def _start_from(self, path: Path) -> None:
        """Load a plain file: the state of the model, or (torch.save only) a dict of states by the parts' names.

        Nothing in the file can run code. Raises ValueError or TypeError, naming the file, where it is none of these.
        """
        try:
            found = read_tensors(path)
        except ValueError as error:
            raise ValueError(f"start_from: {error}") from error
        if not isinstance(found, dict):
            raise TypeError(f"start_from: {path} holds a {type(found).__name__}, not a dict of tensors or states")
        states = found if isinstance(found.get("model"), dict) else {"model": found}
        if any(isinstance(item, torch.Tensor) and item.is_meta for item in states["model"].values()):
            raise ValueError(
                f"start_from: {path} has no weights, since the ranks have saved their shards in other files: export "
                f"the snapshot with `python -m rekindle.training.export {path.parent} weights.pt`, and start from that"
            )
        for name, part in self._parts.items():
            if name in states:
                _load(part, states[name], f"start_from: {path} does not fit {name!r}", "give a file of this very model")

    def _restore_parts(self, restored: RestoredSnapshot, world_size: int) -> None:
        """Load every part of ``restored``.

        In a world of another size no rank is its former self: its random numbers are drawn from seed, step and stream,
        and metrics of former ranks are merged.
        """
        step, shared, parts = restored.step, restored.shared_state, self._parts
        _compare(set(parts), set(shared) - {_PROGRESS}, step)
        for name, part in parts.items():
            _load(part, shared[name], f"the snapshot of step {step} does not fit {name!r}", _HINT)
        if restored.world_size == world_size:
            random_state = restored.rank_states[0]["rng"]
        else:
            rng.seed_all(derived_seed(self.seed, step, self.stream))
            random_state = rng.capture(self.device)
        self._restored = random_state, [state["metrics"] for state in restored.rank_states]
        self._apply(*self._restored)

    def _apply(self, random_state: dict[str, Any], metrics: list[dict[str, Any]]) -> None:
        rng.restore(random_state, self.device)
        restore_metrics(self.metrics, metrics, self.device)


def prepare_metrics(metrics: Metrics, device: torch.device) -> None:
    """Include the metrics in ``state_dict``, which torchmetrics does not by default, and move them to ``device``."""
    for metric in _members(metrics).values():
        metric.persistent(True)
        metric.to(device)


def capture_metrics(metrics: Metrics) -> dict[str, Any]:
    """Capture the state of this rank's metrics."""
    return {
        name: {"state": metric.state_dict(), "updates": metric.update_count}
        for name, metric in _members(metrics).items()
    }


def restore_metrics(metrics: Metrics, states: list[dict[str, Any]], device: torch.device) -> None:
    """Load the ``states`` of one or several former ranks, so that each sample counts once."""
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
        reporter().warn(f"metric {name} is reset: its states of several ranks cannot be merged ({error})")


def _members(metrics: Metrics) -> dict[str, Any]:
    if metrics is None:
        return {}
    if hasattr(metrics, "items"):
        return dict(metrics.items())
    return {type(metrics).__name__: metrics}


def _compare(expected: set[str], found: set[str], step: int) -> None:
    """Refuse a missing part, and one too many, without which the training would continue differently: KeyError."""
    if missing := expected - found:
        raise KeyError(f"the snapshot of step {step} has no {min(missing)!r}, only {sorted(found)}: {_HINT}")
    if extra := found - expected:
        raise KeyError(f"the snapshot of step {step} has {min(extra)!r} too, and Run only {sorted(expected)}: {_HINT}")


def _load(part: Stateful, state: dict[str, Any], problem: str, hint: str) -> None:
    try:
        part.load_state_dict(state)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{problem}: {error}; {hint}") from error
