"""A sum that is the same to the last bit, however its terms are distributed over the ranks.

Floating-point addition is not associative, so the sum of the same gradients differs with the order in which they are
added. Here the order follows from the number of terms alone: neighbours are added in pairs, then the pairs in pairs,
and so on up a binary tree. A rank that holds consecutive terms adds up those whole subtrees that are within its range;
the ranks then exchange the subtrees, and continue up the same tree.
"""

from collections.abc import Iterator
from itertools import chain

import torch.distributed as dist
from torch import Tensor


class TreeReduction:
    """Takes terms from the left to the right, or sums of whole subtrees, and adds up what is complete.

    So it holds no more tensors at a time than the tree is high.
    """

    def __init__(self) -> None:
        self._sums: list[tuple[range, Tensor]] = []

    def add(self, terms: range, value: Tensor) -> None:
        """``value`` is the sum of ``terms``, which follow the ones before; it is written to."""
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
    """The total, on every rank. All ranks must call it.

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
