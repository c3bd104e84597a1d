"""The parts of a step that are the same in every world size: each rank computes some of them, one after another."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
from torch import nn

from rekindle.training import rng
from rekindle.training.addition_tree import AdditionTree, sum_of_all_ranks
from rekindle.training.contribution import Contributions, Flat
from rekindle.training.process_group import World
from rekindle.training.progress import Progress
from rekindle.training.sample_order import derived_seed, share
from rekindle.training.sampler import ElasticSampler


class InParts(nn.Module):
    """Calls ``module``; in training only while a part is ``open``, since nothing else would reach the other ranks."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.open = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not self.open and self.module.training and torch.is_grad_enabled():
            raise RuntimeError(
                "with DeterministicElastic the model is trained part by part: "
                "`for part in run.parts(batch): …` within the loop over `run.batches(…)`"
            )
        return self.module(*args, **kwargs)


class VirtualShards:
    """Cuts every batch in ``count`` shards, of which each rank has a run of neighbours; see ``deterministic_elastic``.

    Random numbers are drawn anew for every shard, for what a script does beside the parts of a step, and for what it
    does in an epoch before the first step: from places in the training that are the same in every world size.
    """

    def __init__(self, model: InParts, world: World, count: int, seed: int) -> None:
        self._model, self._world, self._count, self._seed = model, world, count, seed
        self._spans = [share(count, rank, world.size) for rank in range(world.size)]
        self._own = self._spans[world.rank]

    def indices(self, sampler: ElasticSampler) -> Iterator[list[int]]:
        """Shards are fetched and collated by themselves, so that even what a collate function pads is the same."""
        for batch in sampler.global_batches():
            for shard in self._own:
                own = share(len(batch), shard, self._count)
                yield batch[own.start : own.stop].tolist()

    def batches(self, loader: Iterable[Any]) -> Iterator[list[Any]]:
        fetched = iter(loader)
        while batch := list(islice(fetched, len(self._own))):
            yield batch

    def begin(self, progress: Progress) -> None:
        if progress.in_step:
            self._draw_from(progress.step, self._count)
        else:
            self._draw_from(progress.epoch, -1)

    def of(self, batch: Any, progress: Progress) -> Iterator[Any]:
        """Raises RuntimeError or TypeError where the script does not keep to the rules of ``Run.parts``."""
        own, of_all = progress.share
        outside = rng.capture(self._world.device)
        contributions, sums = Contributions(self._model.module), _Sums()
        contributions.begin()
        for shard, part in zip(self._own, batch, strict=True):
            progress.share = len(share(of_all, shard, self._count)), of_all
            self._draw_from(progress.step, shard)
            self._model.open = True
            yield part
            self._model.open = False
            sums.add(shard, contributions.take())
        progress.share = own, of_all
        rng.restore(outside, self._world.device)
        contributions.put(sums.of_all_ranks(self._spans, self._world), self._count, self._world.size)

    def _draw_from(self, *place: int) -> None:
        """Four numbers, so that no other seed of this training is the same."""
        rng.seed_all(derived_seed(self._seed, *place, self._count))


class _Sums:
    """One tree for each kind of numbers in a contribution."""

    def __init__(self) -> None:
        self._trees: list[AdditionTree] = []

    def add(self, shard: int, flat: Flat) -> None:
        self._trees = self._trees or [AdditionTree() for _ in flat]
        for tree, value in zip(self._trees, flat, strict=True):
            tree.add(range(shard, shard + 1), value)

    def of_all_ranks(self, spans: list[range], world: World) -> Flat:
        if world.size == 1:
            return [tree.total() for tree in self._trees]
        return [sum_of_all_ranks(tree.subtrees(), spans, world.rank) for tree in self._trees]
