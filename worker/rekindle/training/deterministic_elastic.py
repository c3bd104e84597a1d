"""A training with the same result, to the last bit, whether one rank computes it or four.

``DDPStrategy`` keeps the global batches and their order in any world size; but each rank draws its own random numbers,
normalises its own part of a batch, and the ranks' gradients are added in an order that depends on how many there are.
``DeterministicElastic`` takes the world size out of the arithmetic: every batch is split into a fixed number of
*virtual shards*, which the ranks compute in turn, each

- with the same samples, loaded and collated by themselves, and weighted by ``run.batch_weight``,
- with random numbers drawn from (seed, step, shard),
- from the buffers as they were before the step: the mean of what the shards made of them is their new value.

The gradients of the shards are added in a binary tree that is the same whichever rank has which shard
(``tree_reduction``), and every rank steps its optimizer with their mean.

The script loops over the shards (``run.microbatches``), since nothing else would be exact: a loss is a mean over
samples that only the script can take, and it rounds differently over one shard than over two. Hooks of the backward
pass do not know where a shard ends, and a model that splits its input does not compute the loss. Threads within an
operation change sums too, so their number is fixed. No promise holds across other hardware or versions of torch.
"""

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from rekindle.training import rng
from rekindle.training.process_group import World
from rekindle.training.rng import derived_seed
from rekindle.training.sampler import ElasticSampler, TrainingProgress, shard_range
from rekindle.training.shard_gradients import ShardGradients
from rekindle.training.strategy import Strategy, WholeBatch
from rekindle.training.training_state import Stateful


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
    """Splits every batch into ``count`` shards, of which each rank has consecutive ones.

    Random numbers are seeded for every shard, for what a script does in a step besides its shards, and for what it does
    in an epoch before the first step: from positions in the training that are the same in every world size.
    """

    def __init__(self, model: MicrobatchGuard, world: World, count: int, seed: int) -> None:
        self._model, self._world, self._count, self._seed = model, world, count, seed
        self._spans = [shard_range(count, rank, world.size) for rank in range(world.size)]
        self._own = self._spans[world.rank]

    def indices(self, sampler: ElasticSampler) -> Iterator[list[int]]:
        """List the indices of each shard by itself, so that even what a collate function pads is the same."""
        for batch in sampler.global_batches():
            for shard in self._own:
                own = shard_range(len(batch), shard, self._count)
                yield batch[own.start : own.stop].tolist()

    def batches(self, loader: Iterable[Any]) -> Iterator[list[Any]]:
        fetched = iter(loader)
        while batch := list(islice(fetched, len(self._own))):
            yield batch

    def begin(self, progress: TrainingProgress) -> None:
        if progress.in_step:
            self._seed_all(progress.step, self._count)
        else:
            self._seed_all(progress.epoch, -1)

    def of(self, batch: Any, progress: TrainingProgress) -> Iterator[Any]:
        """Yield this rank's shards of ``batch``, then set the gradients of all.

        Raises RuntimeError or TypeError where the script does not follow the rules of ``Run.microbatches``.
        """
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
        """Seed all generators from four numbers, so that no other seed of this training is the same."""
        rng.seed_all(derived_seed(self._seed, *position, self._count))


class DeterministicElastic(Strategy):
    """Train with a result that does not depend on the world size; the script loops over ``run.microbatches(batch)``.

    ``virtual_shards`` is the largest world size; more of them than ranks cost time. ``threads`` compute within a rank.
    Both are saved, and must not change.
    """

    def __init__(self, virtual_shards: int = 4, *, threads: int = 1) -> None:
        if virtual_shards < 1 or threads < 1:
            raise ValueError(f"virtual_shards and threads must be at least 1, not {virtual_shards} and {threads}")
        self._count, self._threads = virtual_shards, threads
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # else cuBLAS, which reads it once, is not so

    def wrap(self, model: nn.Module, world: World) -> nn.Module:
        """Broadcast rank 0's weights. Raises ValueError or TypeError where the training cannot be exact."""
        self._validate(model, world)
        torch.set_num_threads(self._threads)
        if world.device.type == "cuda":
            torch.use_deterministic_algorithms(True)
            torch.backends.cudnn.benchmark = False
        if world.size > 1:
            for tensor in (*model.parameters(), *model.buffers()):
                dist.broadcast(tensor.detach(), src=0)
        return MicrobatchGuard(model)

    def data_shard(self, world: World) -> tuple[int, int]:
        """The first virtual shard of this rank."""
        return shard_range(self._count, world.rank, world.size).start, self._count

    def microbatches(self, model: nn.Module, world: World, seed: int) -> VirtualShards:
        if not isinstance(model, MicrobatchGuard):
            raise TypeError(f"microbatches needs the wrapped model, not a {type(model).__name__}")
        return VirtualShards(model, world, self._count, seed)

    def stateful_parts(self, model: nn.Module, parts: dict[str, Stateful]) -> tuple[Stateful, dict[str, Stateful]]:
        settings = _Settings({"virtual_shards": self._count, "threads": self._threads})
        return model, {**parts, "deterministic_elastic": settings}

    def _validate(self, model: nn.Module, world: World) -> None:
        if world.size > self._count:
            raise ValueError(
                f"{self._count} virtual shards are too few for {world.size} ranks: start at most {self._count}, or "
                "begin a new training with more shards"
            )
        for name, module in model.named_modules():
            if isinstance(module, nn.SyncBatchNorm):
                raise TypeError(
                    f"layer {name} is a SyncBatchNorm, which waits for ranks that may have another number of shards: "
                    "with DeterministicElastic use BatchNorm, which normalises each virtual shard"
                )


class _Settings:
    """Settings that are saved with the training, to be the same when it resumes."""

    def __init__(self, values: dict[str, int]) -> None:
        self._values = values

    def state_dict(self) -> dict[str, Any]:
        return self._values

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        """Compare ``state`` with the settings. Raises ValueError where one differs."""
        for name, value in self._values.items():
            if state[name] != value:
                raise ValueError(
                    f"the snapshot was trained with {name}={state[name]}, and DeterministicElastic now has {value}: "
                    f"give it the old {name}, or start in a new snapshot directory"
                )
