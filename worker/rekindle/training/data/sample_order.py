"""Which samples make up which global batch, and which of them are a rank's. Pure arithmetic, no torch.

A global batch depends on what is left of the epoch alone, never on the world size: so a job that resumes with more or
fewer ranks trains the same batches in the same order.
"""

import hashlib


def next_batch_size(remaining: int, global_batch: int) -> int:
    """How many samples the next global batch has when ``remaining`` samples of the epoch are left.

    The last two batches are evened out where the last would be less than half full: a tail of a sample or two would
    leave ranks with nothing to train on, and batch normalisation fails on a single one.
    """
    if remaining <= global_batch:
        return remaining
    if 2 * remaining < 3 * global_batch:
        return (remaining + 1) // 2
    return global_batch


def batch_sizes(remaining: int, global_batch: int) -> list[int]:
    """The sizes of all global batches to the end of the epoch."""
    full = max(0, remaining // global_batch - 2)
    sizes = [global_batch] * full
    remaining -= full * global_batch
    while remaining > 0:
        sizes.append(next_batch_size(remaining, global_batch))
        remaining -= sizes[-1]
    return sizes


def shard_range(size: int, rank: int, world_size: int) -> range:
    """The indices in a global batch of ``size`` that are trained by ``rank``: each belongs to one rank.

    Ranges differ by one sample at most; nothing is repeated to even them out.
    """
    return range(rank * size // world_size, (rank + 1) * size // world_size)


def derived_seed(*parts: int) -> int:
    """A 64-bit seed of ``parts``, such as (seed, epoch, index): unrelated even where the parts differ by one."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big")
