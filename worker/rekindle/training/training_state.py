"""All that makes a training what it is at one step: what the ranks share, and what each has for itself."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from rekindle.training import metric_state, rng
from rekindle.training.sample_order import derived_seed
from rekindle.training.tensor_file import read_tensors

PROGRESS = "progress"
"""What the shared state of a training holds beside its parts."""

_WAY_OUT = "give Run the parts it was taken with, or start in a new snapshot folder"


class Stateful(Protocol):
    """Torch's own protocol: optimizers, schedulers, scalers, modules and metrics follow it."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Own:
    """What a rank goes on with beside the shared state."""

    rng: dict[str, Any]
    metrics: list[dict[str, Any]]  # of each former rank that this one takes over


@dataclass(slots=True)
class TrainingState:
    """Collects the parts of a training, and puts them back."""

    module: nn.Module
    model: Stateful  # what is saved and loaded for the module
    shared: dict[str, Stateful]  # the same on every rank: saved once
    metrics: Any
    seed: int
    stream: int  # of random numbers: the rank, unless several ranks are to draw the same
    device: torch.device
    _restored: _Own | None = None

    def __post_init__(self) -> None:
        for name, part in self.shared.items():
            for method in ("state_dict", "load_state_dict"):
                if not callable(getattr(part, method, None)):
                    raise TypeError(
                        f"{name} must have state_dict and load_state_dict to be saved, as torch's optimizers have; "
                        f"a {type(part).__name__} has no {method}: add it, or do not give {name} to Run"
                    )

    def capture_shared(self) -> dict[str, Any]:
        """What rank 0 saves for all."""
        return {"model": self.model.state_dict(), **{name: part.state_dict() for name, part in self.shared.items()}}

    def capture_own(self) -> dict[str, Any]:
        """What every rank saves for itself."""
        return {
            "rng": rng.capture(self.device),
            "metrics": metric_state.capture(self.metrics),
        }

    def begin(self) -> None:
        """Start afresh: random draws depend on seed and stream."""
        rng.seed_all(derived_seed(self.seed, 0, self.stream))

    def start_from(self, path: Path) -> None:
        """Take over a plain file: the state of the model, or (torch.save only) a dict of states by the parts' names.

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
                f"start_from: {path} has no weights, since the ranks have saved their shards beside it: export the "
                f"snapshot with `python -m rekindle.training.export {path.parent} weights.pt`, and start from that"
            )
        for name, part in {"model": self.model, **self.shared}.items():
            if name in states:
                _load(part, states[name], f"start_from: {path} does not fit {name!r}", "give a file of this very model")

    def restore(self, shared: dict[str, Any], own: list[dict[str, Any]], *, step: int, same_world: bool) -> None:
        """Put everything back. ``own`` are the states of the former ranks that this rank takes over.

        In a world of another size no rank is its former self: its random numbers are drawn anew from seed, step and
        stream, and metrics of former ranks are merged. Raises KeyError or ValueError, naming the part, where the
        snapshot lacks one, has one more, or has one that does not fit.
        """
        parts = {"model": self.model, **self.shared}
        _compare(set(parts), set(shared) - {PROGRESS}, step)
        for name, part in parts.items():
            _load(part, shared[name], f"the snapshot of step {step} does not fit {name!r}", _WAY_OUT)
        metrics = [state["metrics"] for state in own]
        if same_world:
            self._restored = _Own(own[0]["rng"], metrics)
        else:
            rng.seed_all(derived_seed(self.seed, step, self.stream))
            self._restored = _Own(rng.capture(self.device), metrics)
        self._apply(self._restored)

    def put_back_own(self) -> None:
        """Set this rank's own state once more, whatever the script has done to it since ``restore``.

        Code that stands before the resumed batch runs again after a restart: it may draw random numbers and reset a
        metric. Does nothing in a fresh start, nor a second time.
        """
        if self._restored is not None:
            self._apply(self._restored)
            self._restored = None

    def _apply(self, own: _Own) -> None:
        rng.restore(own.rng, self.device)
        metric_state.restore(self.metrics, own.metrics, self.device)

    def roll_back(
        self, shared: dict[str, Any], own: list[dict[str, Any]], *, step: int, same_world: bool, same_epoch: bool
    ) -> None:
        """``restore`` in the middle of a training. Metrics of another epoch say nothing here: they start anew."""
        self.restore(shared, own, step=step, same_world=same_world)
        self._restored = None
        if not same_epoch:
            metric_state.restore(self.metrics, [], self.device)

    def objection(self, shared: dict[str, Any]) -> str | None:
        """A reason why the captured state must not be kept: weights that are not finite would end every attempt.

        Looks at the copy, so that training need not wait for it.
        """
        buffers = {name for name, _ in self.module.named_buffers()}
        for name, item in shared.get("model", {}).items():
            if name in buffers or not isinstance(item, torch.Tensor) or item.is_meta or not item.is_floating_point():
                continue
            if not bool(torch.isfinite(item).all()):
                return f"parameter {name} is not finite"
        return None


def _compare(wanted: set[str], found: set[str], step: int) -> None:
    """A part too many is refused as well: without it the training would go on otherwise than it began."""
    if missing := wanted - found:
        raise KeyError(f"the snapshot of step {step} has no {min(missing)!r}, only {sorted(found)}: {_WAY_OUT}")
    if extra := found - wanted:
        raise KeyError(f"the snapshot of step {step} has {min(extra)!r} too, and Run only {sorted(wanted)}: {_WAY_OUT}")


def _load(part: Stateful, state: dict[str, Any], complaint: str, way_out: str) -> None:
    try:
        part.load_state_dict(state)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{complaint}: {error}; {way_out}") from error
