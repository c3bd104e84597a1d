"""All that makes a training what it is at one step: what the ranks share, and what each has for itself."""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import nn

from rekindle.training import metric_state, rng
from rekindle.training.sample_order import derived_seed


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
    rank: int
    device: torch.device
    _restored: _Own | None = None

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
        """Start afresh: random draws depend on seed and rank."""
        rng.seed_all(derived_seed(self.seed, 0, self.rank))

    def restore(self, shared: dict[str, Any], own: list[dict[str, Any]], *, step: int, same_world: bool) -> None:
        """Put everything back. ``own`` are the states of the former ranks that this rank takes over.

        In a world of another size no rank is its former self: its random numbers are drawn anew from seed, step and
        rank, and metrics of former ranks are merged. Raises KeyError, naming the part, where the snapshot lacks one.
        """
        self.model.load_state_dict(shared["model"])
        for name, part in self.shared.items():
            if name not in shared:
                raise KeyError(
                    f"the snapshot of step {step} has no {name!r}, only {sorted(shared)}: give Run the parts it was "
                    "taken with, or start in a new snapshot folder"
                )
            part.load_state_dict(shared[name])
        metrics = [state["metrics"] for state in own]
        if same_world:
            self._restored = _Own(own[0]["rng"], metrics)
        else:
            rng.seed_all(derived_seed(self.seed, step, self.rank))
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

    def objection(self) -> str | None:
        """A reason why this state must not be kept: a parameter that is not finite would end every later attempt."""
        floating = [item.detach() for item in self.module.parameters() if item.is_floating_point()]
        if not floating or bool(torch.stack([_finite(item) for item in floating]).all()):
            return None
        bad = (name for name, item in self.module.named_parameters() if not bool(_finite(item)))
        return f"parameter {next(bad)} is not finite"


def _finite(parameter: torch.Tensor) -> torch.Tensor:
    """Of a divided parameter (a DTensor) each rank looks at its own part, and asks nobody."""
    to_local = getattr(parameter, "to_local", None)
    return torch.isfinite(parameter if to_local is None else to_local()).all()
