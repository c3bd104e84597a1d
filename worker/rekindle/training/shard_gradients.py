"""What the virtual shards of a step contribute: gradients, and what their forward passes changed in the buffers."""

from collections.abc import Iterator
from itertools import chain

import torch
import torch.distributed as dist
from torch import Tensor, nn

from rekindle.training.process_group import World


class TreeReduction:
    """A sum that is the same to the last bit, however its terms are distributed over the ranks.

    Floating-point addition is not associative, so the sum of the same gradients differs with the order in which they
    are added. Here the order follows from the number of terms alone: neighbours are added in pairs, then the pairs in
    pairs, and so on up a binary tree. A rank that holds consecutive terms adds up those whole subtrees that are within
    its range; the ranks then exchange the subtrees, and continue up the same tree. So a rank holds no more tensors at
    a time than the tree is high.
    """

    def __init__(self) -> None:
        self._sums: list[tuple[range, Tensor]] = []

    def add(self, terms: range, value: Tensor) -> None:
        """Add ``value``, the sum of ``terms``, which follow the ones before; it is written to."""
        self._sums.append((terms, value))
        while len(self._sums) > 1 and _are_siblings(self._sums[-2][0], terms):
            _, right = self._sums.pop()
            before, left = self._sums.pop()
            terms = range(before.start, terms.stop)
            self._sums.append((terms, left.add_(right)))

    def subtrees(self) -> list[Tensor]:
        """The sums of the subtrees that ``subtrees_in`` names."""
        return [value for _, value in self._sums]

    def total(self) -> Tensor:
        """The sum of all terms. Where their number is no power of two, the subtrees are added from the right."""
        (*rest, total) = self.subtrees()
        for value in reversed(rest):
            total = value.add_(total)
        return total


def subtrees_in(terms: range) -> Iterator[range]:
    """The largest whole subtrees that ``terms`` consist of, from the left to the right."""
    first = terms.start
    while first < terms.stop:
        fits = 1 << ((terms.stop - first).bit_length() - 1)
        size = min(first & -first or fits, fits)
        yield range(first, first + size)
        first += size


def all_reduce_trees(tree: TreeReduction, spans: list[range], rank: int) -> Tensor:
    """Compute the total on every rank. All ranks must call it.

    ``tree`` has this rank's terms, flat tensors of one length on every rank; ``spans`` are the terms of each rank. Each
    rank adds up one slice of every tensor and gathers its total to all, so that about as much is sent as in a ring
    all-reduce.
    """
    if len(spans) == 1:
        return tree.total()
    own, subtrees = tree.subtrees(), [list(subtrees_in(span)) for span in spans]
    ranks, length = len(spans), own[0].numel()
    width = -(-length // ranks)
    padded = own[0].new_zeros(len(own), ranks * width)
    for row, value in zip(padded, own, strict=True):
        row[:length] = value
    sent = padded.view(len(own), ranks, width).transpose(0, 1).reshape(-1, width)
    rows = [len(each) for each in subtrees]
    received = own[0].new_empty(sum(rows), width)
    dist.all_to_all_single(received, sent, rows, [rows[rank]] * ranks)
    slices = TreeReduction()
    for terms, value in zip(chain.from_iterable(subtrees), received, strict=True):
        slices.add(terms, value)
    total = own[0].new_empty(ranks * width)
    dist.all_gather_into_tensor(total, slices.total())
    return total[:length]


def _are_siblings(left: range, right: range) -> bool:
    return len(left) == len(right) and left.start % (2 * len(left)) == 0


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
        """Prepare the model for the next shard."""
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
    """Subtract ``before``: exactly zero where nothing has changed, even where a mask holds infinities."""
    return torch.where(buffer == before, torch.zeros_like(buffer), buffer - before)


def _flatten(tensors: list[Tensor]) -> list[Tensor]:
    """Join ``tensors`` in one flat tensor for each dtype."""
    return [torch.cat([tensors[index].flatten() for index in indices]) for indices in _by_dtype(tensors)]


def _unflatten(flat: list[Tensor], like: list[Tensor]) -> list[Tensor]:
    """Undo ``_flatten``, in the order and the shapes of ``like``."""
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
