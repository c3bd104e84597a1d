"""Which samples are trained when: the order of an epoch, each rank's part of it, and how far a training is.

A global batch depends on what is left of the epoch alone, never on the world size: so a job that resumes with more or
fewer ranks trains the same batches in the same order.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from rekindle.training.rng import derived_seed


def next_batch_size(remaining: int, global_batch: int) -> int:
    """Size of the next global batch when ``remaining`` samples of the epoch are left.

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
        """Yield this rank's indices of each global batch, from ``position`` on."""
        for batch in self.global_batches():
            own = shard_range(len(batch), self._rank, self._world_size)
            yield batch[own.start : own.stop].tolist()

    def global_batches(self) -> Iterator[torch.Tensor]:
        """Yield the indices of all ranks together for each batch, from ``position`` on."""
        order, start = self._order(), self.position
        for size in self._sizes():
            yield order[start : start + size]
            start += size

    def next_sizes(self) -> tuple[int, int]:
        """Number of samples in the next batch for this rank, and for all ranks together."""
        size = next_batch_size(self._length - self.position, self._global_batch)
        return len(shard_range(size, self._rank, self._world_size)), size

    @property
    def finished(self) -> bool:
        """True once the whole epoch has been trained."""
        return self.position >= self._length

    def advance(self) -> None:
        """Count the next global batch as trained."""
        self.position += self.next_sizes()[1]

    def set_epoch(self, epoch: int) -> None:
        """Begin ``epoch``."""
        self.epoch, self.position = epoch, 0

    @property
    def order_key(self) -> tuple[int, ...]:
        """Numbers that are the same where the next batch has the same samples in the same order."""
        seed = self._seed if self._shuffle else -1
        return self._length, seed, self.epoch if self._shuffle else -1, self.position, self.next_sizes()[1]

    def state_dict(self) -> dict[str, Any]:
        """Capture the position, the same on every rank."""
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


Position = tuple[int, int, bool]
"""Step, epoch, and whether the training is within the epoch or after it: different for any two states."""


@dataclass(slots=True)
class TrainingProgress:
    """How far a training is, the same on every rank; ``samples`` alone is this rank's own."""

    step: int = 0  # finished steps, all attempts together
    epoch: int = 0  # the current one, or the next
    epochs: int = 0  # in total
    sampler: ElasticSampler | None = None  # of the current epoch
    samples: tuple[int, int] = (1, 1)  # samples of the current batch: this rank's, all ranks'
    in_step: bool = False
    _interrupted: dict[str, Any] | None = field(default=None, repr=False)  # the sampler's state, to resume from

    @property
    def resumes_epoch(self) -> bool:
        """True where the restored epoch is to be continued, and its batches have not begun."""
        return self._interrupted is not None

    @property
    def position(self) -> Position:
        return self.step, self.epoch, self.sampler is not None or self.resumes_epoch

    def state_dict(self) -> dict[str, Any]:
        """Capture the position without the step, which is the snapshot's own name."""
        sampler = self._interrupted if self.sampler is None else self.sampler.state_dict()
        return {"epoch": self.epoch, "sampler": sampler}

    def restore(self, step: int, state: dict[str, Any]) -> None:
        self.step, self.epoch, self._interrupted = step, state["epoch"], state["sampler"]

    def begin_batches(self, sampler: ElasticSampler) -> int:
        """Begin or resume the epoch's batches; returns the steps that the whole training will have taken.

        Raises RuntimeError outside of an epoch, or where its batches have begun already.
        """
        if self.sampler is not None or self.epoch >= self.epochs:
            raise RuntimeError(
                "run.batches is called once in each epoch of `for epoch in run.epochs(n)`; for a second loop over "
                "other data use a DataLoader with an ElasticSampler of its own"
            )
        sampler.set_epoch(self.epoch)
        steps_per_epoch = len(sampler)
        if self._interrupted is not None:
            sampler.load_state_dict(self._interrupted)
            self._interrupted = None
        self.sampler = sampler
        return self.step + len(sampler) + (self.epochs - self.epoch - 1) * steps_per_epoch

    def begin_step(self, sampler: ElasticSampler) -> None:
        self.samples, self.in_step = sampler.next_sizes(), True

    def end_step(self, sampler: ElasticSampler) -> None:
        sampler.advance()
        self.step += 1
        self.in_step, self.samples = False, (1, 1)

    def end_epoch(self) -> int:
        """Count the epoch; returns the one that has ended."""
        self.epoch, self.sampler = self.epoch + 1, None
        return self.epoch - 1

    @property
    def finished(self) -> bool:
        """True where no epoch is left."""
        return self.epoch >= self.epochs
