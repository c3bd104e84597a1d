"""Whether the ranks that each hold the whole model still hold the same one, by a sample of their weights."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import torch
from torch import Tensor, nn

_PARAMETERS = 128  # that are sampled, spread over the model
_VALUES = 8  # of each
_TOLERANCE = 1e-3  # of a value
_SHARE = 0.05  # of the values: processors of different kinds round differently, which shows in values near 0 alone


@dataclass(frozen=True, slots=True)
class WeightSample:
    """Some values of a rank's parameters; only samples of the same ``layout`` (names and shapes) can be compared."""

    layout: str
    values: Tensor

    def differs_from(self, other: "WeightSample") -> bool:
        """True where the layouts are the same and the weights are not; weights that are not finite never differ."""
        if self.layout != other.layout or torch.equal(self.values, other.values):
            return False
        differing = (self.values - other.values).abs() > _TOLERANCE * other.values.abs()
        return float(differing.float().mean()) > _SHARE


def sample_weights(model: nn.Module) -> WeightSample | None:
    """Sample the parameters that are trained, not the buffers: those of batch normalization differ among replicas.

    None where there is nothing to compare. Training waits for this, so it takes a few values of a few parameters.
    """
    trained = [
        (name, parameter.detach())
        for name, parameter in model.named_parameters()
        if type(parameter) is nn.Parameter and parameter.requires_grad and parameter.numel() and not parameter.is_meta
    ]
    chosen = trained[:: -(-len(trained) // _PARAMETERS) or 1]
    if not chosen:
        return None
    layout = sha256(repr([(name, tuple(tensor.shape)) for name, tensor in trained]).encode()).hexdigest()
    by_device: dict[torch.device, list[Tensor]] = {}
    for _, tensor in chosen:
        by_device.setdefault(tensor.device, []).append(
            tensor.reshape(-1)[:_VALUES] if tensor.dim() < 2 else _row(tensor)
        )
    values = [torch.cat([part.float() for part in parts]).cpu() for parts in by_device.values()]
    return WeightSample(layout, torch.cat(values))


def _row(tensor: Tensor) -> Tensor:
    """Take values of the first row alone, since flattening a tensor that is not contiguous would copy all of it."""
    return tensor[:1].reshape(-1)[:_VALUES]


def differing_ranks(samples: Sequence[WeightSample | None]) -> list[int]:
    """List the ranks whose weights differ from those of rank 0; none where a rank has no sample."""
    first, *others = samples
    if first is None:
        return []
    return [rank for rank, own in enumerate(others, start=1) if own is not None and own.differs_from(first)]
