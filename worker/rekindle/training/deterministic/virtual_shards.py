"""The micro-batches of a step that are the same in every world size: each rank computes some of them in turn."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import nn

from rekindle.training.data import rng
from rekindle.training.data.progress import Progress
from rekindle.training.data.sample_order import derived_seed, shard_range
from rekindle.training.data.sampler import ElasticSampler
from rekindle.training.deterministic.shard_gradients import ShardGradients
from rekindle.training.process_group import World
from rekindle.training.strategies.strategy import WholeBatch


class MicrobatchGuard(nn.Module):
    """Calls ``module``; in training only within a micro-batch, since nothing else would reach the other ranks."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.open = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not self.open and self.module.training and torch.is_grad_enabled():
            raise RuntimeError(
                "with DeterministicElastic the model is trained by micro-batches: "
                "`for microbatch in run.microbatches(batch): …` within the loop over `run.batches(…)`"
            )
        return self.module(*args, **kwargs)


class VirtualShards(WholeBatch):
    """Splits every batch into ``count`` shards, of which each rank has consecutive ones; see ``deterministic_elastic``.

    Random numbers are seeded for every shard, for what a script does in a step besides its shards, and for what it does
    in an epoch before the first step: from positions in the training that are the same in every world size.
    """

    def __init__(self, model: MicrobatchGuard, world: World, count: int, seed: int) -> None:
        self._model, self._world, self._count, self._seed = model, world, count, seed
        self._spans = [shard_range(count, rank, world.size) for rank in range(world.size)]
        self._own = self._spans[world.rank]

    def indices(self, sampler: ElasticSampler) -> Iterator[list[int]]:
        """Each shard is fetched and collated by itself, so that even what a collate function pads is the same."""
        for batch in sampler.global_batches():
            for shard in self._own:
                own = shard_range(len(batch), shard, self._count)
                yield batch[own.start : own.stop].tolist()

    def batches(self, loader: Iterable[Any]) -> Iterator[list[Any]]:
        fetched = iter(loader)
        while batch := list(islice(fetched, len(self._own))):
            yield batch

    def begin(self, progress: Progress) -> None:
        if progress.in_step:
            self._seed_all(progress.step, self._count)
        else:
            self._seed_all(progress.epoch, -1)

    def of(self, batch: Any, progress: Progress) -> Iterator[Any]:
        """Raises RuntimeError or TypeError where the script does not follow the rules of ``Run.microbatches``."""
        samples = progress.samples
        outside = rng.capture(self._world.device)
        gradients = ShardGradients(self._model.module)
        gradients.begin()
        for shard, microbatch in zip(self._own, batch, strict=True):
            progress.samples = len(shard_range(samples[1], shard, self._count)), samples[1]
            self._seed_all(progress.step, shard)
            self._model.open = True
            yield microbatch
            self._model.open = False
            gradients.collect(shard)
        progress.samples = samples
        rng.restore(outside, self._world.device)
        gradients.apply(self._spans, self._world)

    def _seed_all(self, *position: int) -> None:
        """Of four numbers, so that no other seed of this training is the same."""
        rng.seed_all(derived_seed(self._seed, *position, self._count))
