"""Summing gradients over all ranks by hand: what DistributedDataParallel does internally."""

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor

_BUCKET_SIZE = 1 << 18  # bytes

AllReduce = Callable[[list[Tensor]], None]
"""Replaces each tensor, in place, by its sum over all ranks; afterwards all ranks hold the same bits."""


def naive(tensors: list[Tensor]) -> None:
    """Rank 0 receives all tensors, sums them and sends them back: its link carries k - 1 times the others' traffic."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for tensor in tensors:
        if rank == 0:
            received = torch.empty_like(tensor)
            for peer in range(1, ranks):
                dist.recv(received, peer)
                tensor += received
            for peer in range(1, ranks):
                dist.send(tensor, peer)
        else:
            dist.send(tensor, 0)
            dist.recv(tensor, 0)


def ring(tensors: list[Tensor]) -> None:
    """All tensors as one, in k chunks that circulate: each link carries 2 (k - 1) / k of the data, whatever k is.

    Reduce-scatter: in the first k - 1 rounds every rank sends a partial sum to its right neighbor; then each chunk is
    complete on one rank. All-gather: in the next k - 1 rounds the complete chunks circulate.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    chunks = list(flat.tensor_split(ranks))
    for round_ in range(ranks - 1):
        received = _exchange(chunks[(rank - round_) % ranks], chunks[(rank - round_ - 1) % ranks])
        chunks[(rank - round_ - 1) % ranks] += received
    for round_ in range(ranks - 1):
        received = _exchange(chunks[(rank - round_ + 1) % ranks], chunks[(rank - round_) % ranks])
        chunks[(rank - round_) % ranks].copy_(received)
    _unflatten(flat, tensors)


def bucketed(tensors: list[Tensor]) -> None:
    """torch's own all-reduce, one per bucket: few large messages, all in flight at once."""
    buckets = list(_buckets(tensors))
    flats = [torch.cat([tensor.flatten() for tensor in bucket]) for bucket in buckets]
    in_flight = [dist.all_reduce(flat, async_op=True) for flat in flats]
    for bucket, flat, work in zip(buckets, flats, in_flight, strict=True):
        if work is not None:
            work.wait()
        _unflatten(flat, bucket)


ALGORITHMS: dict[str, AllReduce] = {"naive": naive, "ring": ring, "bucketed": bucketed}


def _exchange(chunk: Tensor, expected: Tensor) -> Tensor:
    """Send ``chunk`` to the right while a tensor like ``expected`` arrives from the left."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    received = torch.empty_like(expected)
    sends = dist.P2POp(dist.isend, chunk, (rank + 1) % ranks)
    receives = dist.P2POp(dist.irecv, received, (rank - 1) % ranks)
    for work in dist.batch_isend_irecv([sends, receives]):
        work.wait()
    return received


def _buckets(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for tensor in tensors:
        bucket.append(tensor)
        if sum(each.nbytes for each in bucket) >= _BUCKET_SIZE:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


def _unflatten(flat: Tensor, tensors: list[Tensor]) -> None:
    start = 0
    for tensor in tensors:
        tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
        start += tensor.numel()
