"""Adding up gradients over all ranks, by hand: what DistributedDataParallel does inside."""

from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor

_BUCKET = 1 << 18  # bytes

AllReduce = Callable[[list[Tensor]], None]
"""Replaces each tensor, in place, by its sum over all ranks; afterwards all ranks hold the same bits."""


def naive(tensors: list[Tensor]) -> None:
    """Rank 0 receives everything, adds it up and sends it back: its link carries k - 1 times what others' do."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for tensor in tensors:
        if rank == 0:
            theirs = torch.empty_like(tensor)
            for peer in range(1, ranks):
                dist.recv(theirs, peer)
                tensor += theirs
            for peer in range(1, ranks):
                dist.send(tensor, peer)
        else:
            dist.send(tensor, 0)
            dist.recv(tensor, 0)


def ring(tensors: list[Tensor]) -> None:
    """All tensors as one, cut in k chunks that go round: each link carries 2 (k - 1) / k of the data, however large k.

    In the first k - 1 rounds every rank passes a partial sum on to its right; then each chunk is complete on one rank.
    In the next k - 1 rounds the complete chunks go round.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    flat = torch.cat([tensor.flatten() for tensor in tensors])
    chunks = list(flat.tensor_split(ranks))
    for turn in range(ranks - 1):
        received = _pass_on(chunks[(rank - turn) % ranks], chunks[(rank - turn - 1) % ranks])
        chunks[(rank - turn - 1) % ranks] += received
    for turn in range(ranks - 1):
        received = _pass_on(chunks[(rank - turn + 1) % ranks], chunks[(rank - turn) % ranks])
        chunks[(rank - turn) % ranks].copy_(received)
    _unflatten(flat, tensors)


def bucketed(tensors: list[Tensor]) -> None:
    """torch's own all-reduce, one for each bucket: few large messages, all of them under way at once."""
    buckets = list(_buckets(tensors))
    flats = [torch.cat([tensor.flatten() for tensor in bucket]) for bucket in buckets]
    under_way = [dist.all_reduce(flat, async_op=True) for flat in flats]
    for bucket, flat, work in zip(buckets, flats, under_way, strict=True):
        if work is not None:
            work.wait()
        _unflatten(flat, bucket)


WAYS: dict[str, AllReduce] = {"naive": naive, "ring": ring, "bucketed": bucketed}


def _pass_on(chunk: Tensor, expected: Tensor) -> Tensor:
    """Send ``chunk`` to the right while one like ``expected`` comes from the left."""
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
        if sum(each.nbytes for each in bucket) >= _BUCKET:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


def _unflatten(flat: Tensor, tensors: list[Tensor]) -> None:
    start = 0
    for tensor in tensors:
        tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
        start += tensor.numel()
