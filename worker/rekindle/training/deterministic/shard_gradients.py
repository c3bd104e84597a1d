"""What the virtual shards of a step contribute: gradients, and what their forward passes changed in the buffers."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rekindle.training.deterministic.tree_reduction import TreeReduction, all_reduce_trees
from rekindle.training.process_group import World


class ShardGradients:
    """Collects the contributions of one step, shard by shard, and applies their mean to the model.

    Every shard starts from the buffers as they were before the step. The mean of what the shards made of them is the
    new value: for batch normalisation, running statistics over the whole batch. A buffer that holds no floating-point
    numbers, such as a count of batches, becomes what the first of all shards made of it.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parameters = [each for each in model.parameters() if each.requires_grad]
        self._versions = [each._version for each in self._parameters]
        buffers = [(each, each.clone()) for each in model.buffers()]  # now, and before the step
        self._floats = [pair for pair in buffers if pair[0].is_floating_point()]
        self._others = [pair for pair in buffers if not pair[0].is_floating_point()]
        self._others_of_first: list[Tensor] = []
        self._trees: list[TreeReduction] = []  # one for each dtype

    @torch.no_grad()
    def begin(self) -> None:
        """The next shard follows."""
        for parameter in self._parameters:
            parameter.grad = None
        for buffer, before in (*self._floats, *self._others):
            buffer.copy_(before)

    @torch.no_grad()
    def collect(self, shard: int) -> None:
        """Add what ``shard``, the next of this rank, has contributed; the model's gradients are cleared.

        A parameter that the shard does not use contributes zeros. Raises RuntimeError where the script has not run the
        backward pass, or has stepped its optimizer.
        """
        self._check_usage()
        if not self._others_of_first:
            self._others_of_first = [each.clone() for each, _ in self._others]
        changes = (_change(*pair) for pair in self._floats)
        flat = _flatten([*(_gradient(each) for each in self._parameters), *changes])
        self._trees = self._trees or [TreeReduction() for _ in flat]
        for tree, value in zip(self._trees, flat, strict=True):
            tree.add(range(shard, shard + 1), value)
        self.begin()

    @torch.no_grad()
    def apply(self, spans: list[range], world: World) -> None:
        """Set gradients and buffers to the means over all shards; ``spans`` are those of each rank.

        All ranks must call it.
        """
        count = spans[-1].stop
        totals = [all_reduce_trees(tree, spans, world.rank) for tree in self._trees]
        like = [*self._parameters, *(each for each, _ in self._floats)]
        means = iter(_unflatten([total.div_(count) for total in totals], like))
        for parameter in self._parameters:
            parameter.grad = next(means)
        for buffer, before in self._floats:
            buffer.copy_(before + next(means))
        flat = _flatten(self._others_of_first)
        if world.size > 1:
            for each in flat:
                dist.broadcast(each, src=0)
        others = [each for each, _ in self._others]
        for buffer, of_first in zip(others, _unflatten(flat, others), strict=True):
            buffer.copy_(of_first)

    def _check_usage(self) -> None:
        if [each._version for each in self._parameters] != self._versions:
            raise RuntimeError(
                "the weights changed within a micro-batch: `optimizer.step()` belongs after the loop over "
                "`run.microbatches(batch)`, where the gradients of the whole batch are"
            )
        if all(each.grad is None for each in self._parameters):
            raise RuntimeError(
                "a micro-batch has left no gradient: call `loss.backward()` for each, within the loop over "
                "`run.microbatches(batch)`"
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


def _flatten(tensors: list[Tensor]) -> list[Tensor]:
    """One flat tensor for each dtype."""
    return [torch.cat([tensors[index].flatten() for index in indices]) for indices in _by_dtype(tensors)]


def _unflatten(flat: list[Tensor], like: list[Tensor]) -> list[Tensor]:
    """What was flattened, in the order and the shapes of ``like``."""
    tensors: dict[int, Tensor] = {}
    for whole, indices in zip(flat, _by_dtype(like), strict=True):
        tensors.update(zip(indices, torch.split(whole, [like[index].numel() for index in indices]), strict=True))
    return [tensors[index].view(each.shape) for index, each in enumerate(like)]


def _by_dtype(tensors: list[Tensor]) -> list[list[int]]:
    """The indices of the tensors of each dtype."""
    indices: dict[torch.dtype, list[int]] = {}
    for index, tensor in enumerate(tensors):
        indices.setdefault(tensor.dtype, []).append(index)
    return list(indices.values())
