"""A model in evaluation mode for the duration of a ``with`` block."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Within, all of ``model`` is in evaluation mode. Afterwards each layer is as it was: frozen ones stay frozen."""
    modes = {layer: layer.training for layer in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode
