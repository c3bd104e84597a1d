"""What one virtual shard adds to a step: its gradients, and what its forward pass has changed in the buffers."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

Flat = list[Tensor]
"""One tensor for each kind of numbers, in which all gradients and changes of that kind follow each other."""


class Contributions:
    """Takes the contributions of one step, shard by shard, and puts their mean into the model.

    Every shard starts from the buffers as they were before the step. The mean of what the shards made of them is the
    new value: for batch normalisation, running statistics over the whole batch. A buffer that holds no floating-point
    numbers, such as a count of batches, becomes what the first of all shards made of it.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self._versions = [each._version for each in self._parameters]
        buffers = list(model.buffers())
        self._measures = [each for each in buffers if each.is_floating_point()]
        self._counts = [each for each in buffers if not each.is_floating_point()]
        self._measures_before = [each.clone() for each in self._measures]
        self._counts_before = [each.clone() for each in self._counts]
        self._counts_of_first: list[Tensor] = []

    def begin(self) -> None:
        """The next shard follows."""
        for parameter in self._parameters:
            parameter.grad = None
        self._reset_buffers()

    @torch.no_grad()
    def take(self) -> Flat:
        """What the shard has contributed, in tensors of its own; the model's gradients are taken away.

        A parameter that the shard does not use contributes zeros. Raises RuntimeError where the script has not run the
        backward pass, or has stepped its optimizer.
        """
        self._refuse_misuse()
        if not self._counts_of_first:
            self._counts_of_first = [each.clone() for each in self._counts]
        gradients = [_gradient(each) for each in self._parameters]
        changes = [_change(*pair) for pair in zip(self._measures, self._measures_before, strict=True)]
        flat = _joined([*gradients, *changes])
        self.begin()
        return flat

    @torch.no_grad()
    def put(self, total: Flat, shards: int, ranks: int) -> None:
        """Make gradients and buffers of ``total``, the sum over all ``shards``. All ranks must call it."""
        means = iter(_split([flat.div_(shards) for flat in total], [*self._parameters, *self._measures]))
        for parameter in self._parameters:
            parameter.grad = next(means)
        for buffer, before in zip(self._measures, self._measures_before, strict=True):
            buffer.copy_(before + next(means))
        self._put_counts(ranks)

    def _put_counts(self, ranks: int) -> None:
        flat = _joined(self._counts_of_first)
        if ranks > 1:
            for each in flat:
                dist.broadcast(each, src=0)
        for count, of_first in zip(self._counts, _split(flat, self._counts), strict=True):
            count.copy_(of_first)

    @torch.no_grad()
    def _reset_buffers(self) -> None:
        for buffers, before in ((self._measures, self._measures_before), (self._counts, self._counts_before)):
            for buffer, value in zip(buffers, before, strict=True):
                buffer.copy_(value)

    def _refuse_misuse(self) -> None:
        if [each._version for each in self._parameters] != self._versions:
            raise RuntimeError(
                "the weights changed inside of a part: `optimizer.step()` belongs behind the loop over "
                "`run.parts(batch)`, where the gradients of the whole batch are"
            )
        if all(each.grad is None for each in self._parameters):
            raise RuntimeError(
                "a part has left no gradient: call `loss.backward()` for each part, inside of the loop over "
                "`run.parts(batch)`"
            )


def _gradient(parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    if parameter.grad.layout is not torch.strided:
        raise TypeError(
            f"a gradient of shape {tuple(parameter.shape)} is sparse, and sparse gradients have no fixed order of "
            "addition: build the layer with sparse=False"
        )
    return parameter.grad


def _change(buffer: Tensor, before: Tensor) -> Tensor:
    """Exactly zero where nothing has changed, even where a mask holds infinities."""
    return torch.where(buffer == before, torch.zeros_like(buffer), buffer - before)


def _joined(tensors: list[Tensor]) -> Flat:
    return [torch.cat([tensors[place].flatten() for place in places]) for places in _kinds(tensors)]


def _split(flat: Flat, like: list[Tensor]) -> list[Tensor]:
    """What was joined, in the order and the shapes of ``like``."""
    pieces: dict[int, Tensor] = {}
    for whole, places in zip(flat, _kinds(like), strict=True):
        sizes = [like[place].numel() for place in places]
        pieces.update(zip(places, torch.split(whole, sizes), strict=True))
    return [pieces[place].view(each.shape) for place, each in enumerate(like)]


def _kinds(tensors: list[Tensor]) -> list[list[int]]:
    """The places of the tensors of each kind of numbers."""
    kinds: dict[torch.dtype, list[int]] = {}
    for place, tensor in enumerate(tensors):
        kinds.setdefault(tensor.dtype, []).append(place)
    return list(kinds.values())
