"""What a recipe sets up before its first step: process group, batch size, learning rate, optimizer."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self, cast

import torch
from torch import Tensor, nn
from torchmetrics import MeanMetric
from torchmetrics.classification import MulticlassAccuracy

from rekindle.contract.environment import RankEnv
from rekindle.recipes.catalog import RECIPES, Options
from rekindle.recipes.data_sets import Data
from rekindle.training import process_group as groups
from rekindle.training.drain import Drained, LastStep
from rekindle.training.process_group import World
from rekindle.training.reporter import reporter
from rekindle.training.run import Run
from rekindle.training.sampler import batch_sizes, shard_range
from rekindle.training.strategy import Strategy
from rekindle.training.training_state import Stateful

_GAMMA = 0.1  # factor of the learning rate at each of --lr-steps


def make_deterministic(seed: int) -> None:
    """Seed torch before the model is built: weights are drawn from ``seed``, the same on every rank."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, cuBLAS refuses to be deterministic
    torch.use_deterministic_algorithms(True)
    # filling memory costs some percent, and nothing here reads uninitialized memory
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # set up at run time
    torch.backends.cudnn.benchmark = False
    torch.manual_seed(seed)


@contextmanager
def start_recipe(name: str) -> Iterator[tuple[Options, World]]:
    """Read the options from the command line, seed torch and join the other ranks.

    Raises ValueError where a recipe of a single process has several ranks, each of which would train all samples.
    """
    recipe = RECIPES[name]
    options = recipe.parse()
    make_deterministic(options.seed)
    with process_group() as world:
        if recipe.single_process and world.size > 1:
            raise ValueError(
                f"recipe {name} runs in one process, and {world.size} ranks were started: start one, or use recipe ddp"
            )
        yield options, world


@contextmanager
def process_group() -> Iterator[World]:
    """Join the other ranks before the model is built, since some strategies shard it first; ``Run`` uses this group."""
    world = groups.join(RankEnv.read(os.environ), reporter().device_kind or "auto")
    try:
        yield world
    except (Drained, LastStep):
        groups.leave(world)
        raise
    except BaseException:
        groups.abort(world)
        raise
    groups.leave(world)


@dataclass(frozen=True, slots=True)
class BatchSize:
    """Samples per step, which ``data_parallel_size`` ranks divide; that is 1 where all ranks train the same samples.

    ``default`` is the global batch where the options set none.
    """

    options: Options
    data_parallel_size: int
    default: int = 128

    @property
    def scale(self) -> int:
        """Factor by which the global batch is larger than that of one rank alone would be."""
        return 1 if self.options.batch_size_per_rank is None else self.data_parallel_size

    @property
    def global_batch(self) -> int:
        """Samples per step of all ranks."""
        return (self.options.batch_size_per_rank or self.options.batch_size or self.default) * self.scale

    def samples_in_last(self, steps: int, length: int) -> int:
        """Count the samples of the last ``steps`` batches of an epoch of ``length`` samples; batches differ in size."""
        sizes = batch_sizes(length, self.global_batch)
        return sum(sizes[max(0, len(sizes) - steps) :])

    def steps(self, length: int) -> int:
        """Count the steps of an epoch of ``length`` samples."""
        return len(batch_sizes(length, self.global_batch))

    def of_rank(self, rank: int) -> int:
        """Count the samples per step of ``rank``; all of them where ranks share none."""
        shard = rank if self.data_parallel_size > 1 else 0
        return len(shard_range(self.global_batch, shard, self.data_parallel_size))

    def __str__(self) -> str:
        if self.data_parallel_size == 1:
            return f"global batch {self.global_batch}, not divided"
        smallest, rest = divmod(self.global_batch, self.data_parallel_size)
        per_rank = f"{smallest} or {smallest + 1}" if rest else f"{smallest}"
        return f"global batch {self.global_batch} = {self.data_parallel_size} ranks x {per_rank}"


@dataclass(frozen=True, slots=True)
class LearningRate:
    """Learning rate as a function of step and epoch alone, so a snapshot need not hold it.

    It rises to ``peak`` over the warm-up steps; then it drops at each of ``--lr-steps`` or, without those, decays as a
    cosine over all epochs. ``scale`` is that of the batch; ``--lr`` is meant for the batch of one rank.
    """

    options: Options
    scale: int

    @property
    def peak(self) -> float:
        factor = {"none": 1.0, "linear": float(self.scale), "sqrt": math.sqrt(self.scale)}[self.options.lr_rule]
        return self.options.lr * factor

    def at(self, step: int, epoch: int) -> float:
        """Compute the rate; ``step`` and ``epoch`` count from 0."""
        warmup, milestones = self.options.warmup_steps, self.options.lr_steps
        rising = min(1.0, (step + 1) / warmup) if warmup > 0 else 1.0
        if milestones:
            decay = float(_GAMMA ** sum(epoch >= milestone for milestone in milestones))
        else:
            decay = (1 + math.cos(math.pi * epoch / self.options.epochs)) / 2
        return self.peak * rising * decay


class Optimizer(Stateful, Protocol):
    """What the training loop needs of torch's optimizers, and of a hand-written one."""

    param_groups: list[dict[str, Any]]

    def zero_grad(self) -> None: ...
    def step(self) -> Any: ...


def sgd(model: nn.Module, options: Options, **settings: Any) -> torch.optim.SGD:
    """Make the optimizer of most recipes; the training loop sets its learning rate at every step."""
    return torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=5e-4, **settings)


def micro_accuracy(classes: int, **settings: Any) -> MulticlassAccuracy:
    """Make a metric that counts every sample the same, whatever its class."""
    return MulticlassAccuracy(classes, average="micro", **settings)


@dataclass(frozen=True, slots=True)
class EpochScore:
    """Mean ``loss``, and ``accuracy`` as a fraction of the samples."""

    loss: float
    accuracy: float

    def __str__(self) -> str:
        return f"loss {self.loss:.4f} | acc {self.accuracy:.1%}"


@dataclass(frozen=True, slots=True)
class Count:
    """How many samples a metric has seen, and how many of them were classified correctly."""

    correct: int
    total: int

    @classmethod
    def of(cls, metric: MulticlassAccuracy) -> Self:
        """Read the counts of the metric, those of all ranks while it is synchronized."""
        correct = int(cast("Tensor", metric.tp).sum())
        return cls(correct, correct + int(cast("Tensor", metric.fn).sum()))

    def __str__(self) -> str:
        return f"{self.correct} / {self.total} = {self.correct / max(self.total, 1):.2%}"


class EpochMetrics:
    """Loss and accuracy over an epoch; communicates with other ranks only in ``all_ranks``."""

    def __init__(self, classes: int) -> None:
        # without validation of arguments, which would wait for the GPU in every step
        self._loss = MeanMetric(nan_strategy="disable", sync_on_compute=False, compute_with_cache=False)
        self._accuracy = micro_accuracy(classes, validate_args=False, sync_on_compute=False, compute_with_cache=False)

    @property
    def torchmetrics(self) -> dict[str, MeanMetric | MulticlassAccuracy]:
        """Metrics for ``Run``, so that an interrupted epoch counts every sample once."""
        return {"loss": self._loss, "accuracy": self._accuracy}

    def update(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Add a batch; ``loss`` is the mean over the samples of ``labels``."""
        self._loss.update(loss.detach(), weight=len(labels))
        self._accuracy.update(logits.detach().float(), labels)

    def reset(self) -> None:
        for metric in self.torchmetrics.values():
            metric.reset()

    def this_rank(self) -> EpochScore:
        return EpochScore(self._loss.compute().item(), self._accuracy.compute().item())

    def all_ranks(self) -> EpochScore:
        """Score of all ranks, in which each sample has the same weight. All ranks call it."""
        for metric in self.torchmetrics.values():
            metric.sync()  # until the next compute
        return self.this_rank()


class TrainingContext:
    """What the training loop needs. ``data_parallel_size`` ranks divide each batch."""

    def __init__(
        self, options: Options, data: Data, optimizer: Optimizer, device: torch.device, data_parallel_size: int
    ) -> None:
        self.options, self.data, self.optimizer = options, data, optimizer
        self.scaler = torch.amp.GradScaler(device.type, enabled=options.amp == "fp16")
        self.metrics = EpochMetrics(data.shape.classes)
        self.batch = BatchSize(options, data_parallel_size)
        self.learning_rate = LearningRate(options, self.batch.scale)

    def run(self, model: nn.Module, strategy: Strategy, scaler: Stateful | None = None) -> Run:
        """Make the run of ``model`` with ``strategy``; its snapshots hold optimizer, scaler and metrics as well."""
        metrics, seed = self.metrics.torchmetrics, self.options.seed
        return Run(model=model, optimizer=self.optimizer, scaler=scaler, metrics=metrics, seed=seed, strategy=strategy)
