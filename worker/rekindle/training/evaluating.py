"""A model in evaluation mode, for a while."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Within, all of ``model`` is in evaluation mode. Then each layer is as it was: frozen ones stay frozen."""
    modes = {layer: layer.training for layer in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for layer, mode in modes.items():
            layer.training = mode
