"""A sampler whose order does not depend on the world size, and which resumes at the exact sample."""

from collections.abc import Iterator
from typing import Any

import torch

from rekindle.training.data.sample_order import batch_sizes, derived_seed, next_batch_size, shard_range


class ElasticSampler:
    """This rank's part of every global batch of an epoch; give it to a DataLoader as ``batch_sampler``.

    The order of an epoch is a permutation drawn from (seed, epoch) alone, cut into global batches, of which each rank
    takes its shard: every sample is trained once an epoch, whatever the world size, even if it changes in between.

    ``position`` counts the samples of the epoch that all ranks together have *trained*, not those that a loader has
    fetched ahead: call ``advance`` after each step, and ``set_epoch`` before the next epoch.

    Raises ValueError where a rank would get an empty batch.
    """

    def __init__(
        self, length: int, global_batch: int, *, seed: int = 0, rank: int = 0, world_size: int = 1, shuffle: bool = True
    ) -> None:
        if global_batch < 1 or length < 1:
            raise ValueError(f"length and global_batch must be at least 1, not {length} and {global_batch}")
        self._length, self._global_batch, self._seed, self._shuffle = length, global_batch, seed, shuffle
        self._rank, self._world_size = rank, world_size
        self.epoch = 0
        self.position = 0
        if (smallest := min(self._sizes())) < world_size:
            raise ValueError(
                f"{length} samples in batches of {global_batch} make one of {smallest}, too few for {world_size} ranks "
                f"or shards; the global batch must be at least {2 * world_size}, and so must the data set"
            )

    def __len__(self) -> int:
        """Batches left in this epoch."""
        return len(self._sizes())

    def __iter__(self) -> Iterator[list[int]]:
        """This rank's indices of each global batch, from ``position`` on."""
        for batch in self.global_batches():
            own = shard_range(len(batch), self._rank, self._world_size)
            yield batch[own.start : own.stop].tolist()

    def global_batches(self) -> Iterator[torch.Tensor]:
        """The indices of all ranks together for each batch, from ``position`` on."""
        order, start = self._order(), self.position
        for size in self._sizes():
            yield order[start : start + size]
            start += size

    def next_sizes(self) -> tuple[int, int]:
        """How many samples the next batch has for this rank, and for all ranks together."""
        size = next_batch_size(self._length - self.position, self._global_batch)
        return len(shard_range(size, self._rank, self._world_size)), size

    @property
    def finished(self) -> bool:
        """Whether the whole epoch has been trained."""
        return self.position >= self._length

    def advance(self) -> None:
        """The next global batch has been trained."""
        self.position += self.next_sizes()[1]

    def set_epoch(self, epoch: int) -> None:
        """Begin ``epoch``."""
        self.epoch, self.position = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """The same on every rank."""
        return {"epoch": self.epoch, "position": self.position, "length": self._length, "seed": self._seed}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume where ``state`` was taken.

        Raises ValueError where the data set or the seed is another one: samples would be omitted and repeated.
        """
        for name, own in (("length", self._length), ("seed", self._seed)):
            if state[name] != own:
                raise ValueError(
                    f"the snapshot was taken in epoch {state['epoch']} of a data set with {name} {state[name]}, now it "
                    f"is {own}: the epoch cannot be resumed exactly; restore the old {name} or start in a new directory"
                )
        self.epoch, self.position = state["epoch"], state["position"]

    def _sizes(self) -> list[int]:
        return batch_sizes(self._length - self.position, self._global_batch)

    def _order(self) -> torch.Tensor:
        if not self._shuffle:
            return torch.arange(self._length)
        generator = torch.Generator().manual_seed(derived_seed(self._seed, self.epoch))
        return torch.randperm(self._length, generator=generator)
