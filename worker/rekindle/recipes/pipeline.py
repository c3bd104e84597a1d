"""Recipe: train with pipeline parallelism: each rank has some of the layers, micro-batches pass from rank to rank.

    torchrun --nproc-per-node 2 -m rekindle.recipes.pipeline --micro-batches 4
    rekindle submit --recipe pipeline --ranks 2

Rank 0 has the first layers and gets the images, the last rank has the last layers and computes the loss. While one
micro-batch is on rank 1, the next is on rank 0: with few micro-batches the ranks mostly wait for each other.
"""

from collections import OrderedDict
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.functional import cross_entropy

from rekindle.recipes import data_sets, models
from rekindle.recipes.loop import accuracy_of, fit, weight_hash
from rekindle.recipes.training_context import TrainingContext, sgd, start_recipe
from rekindle.training.process_group import World
from rekindle.training.run import Run, eval_mode
from rekindle.training.sampler import shard_range
from rekindle.training.snapshots.dtensor_io import map_tensors
from rekindle.training.strategy import NoStrategy
from rekindle.training.training_state import Stateful


def main() -> None:
    with start_recipe("pipeline") as (options, world):
        images = data_sets.load(options, world)
        stage = split_stages(models.build(options.model, images.shape), world.rank, world.size).to(world.device)
        context = TrainingContext(options, images, sgd(stage, options), world.device, data_parallel_size=1)
        with context.run(stage, PipelineStrategy()) as run:
            pipeline = Pipeline(run, context, world)
            fit(run, context, pipeline.train_step, pipeline.evaluate, pipeline.weight_hash)


def split_stages(model: nn.Sequential, rank: int, ranks: int) -> nn.Sequential:
    """Select the consecutive layers of ``rank``, under the names that they have in the full model.

    A layer without parameters belongs to the stage of the one before it. Raises ValueError for more ranks than layers.
    """
    starts = [index for index, layer in enumerate(model) if next(layer.parameters(), None) is not None]
    if len(starts) < ranks:
        raise ValueError(f"the model has {len(starts)} layers, too few for a pipeline of {ranks} ranks")
    own = shard_range(len(starts), rank, ranks)
    start = 0 if rank == 0 else starts[own.start]
    stop = len(model) if rank == ranks - 1 else starts[own.stop]
    return nn.Sequential(OrderedDict((str(index), model[index]) for index in range(start, stop)))


class Pipeline:
    """The stages of all ranks as one model."""

    def __init__(self, run: Run, context: TrainingContext, world: World) -> None:
        self._run, self._context, self._world = run, context, world
        self._last = run.world_size - 1
        self._schedules: dict[tuple[int, bool], ScheduleGPipe] = {}

    def train_step(self, run: Run, context: TrainingContext, batch: Any) -> None:
        images, labels = batch
        context.optimizer.zero_grad()
        logits = self._broadcast(self._schedule(labels, trains=True).step(**self._inputs(images, labels)), labels)
        context.optimizer.step()
        loss = cross_entropy(logits, labels)
        context.metrics.update(loss, logits, labels)
        run.log(loss=loss)

    def evaluate(self, run: Run, context: TrainingContext) -> float:
        with run.phase("evaluate"), eval_mode(run.module):
            return accuracy_of(run, context, self._predict)

    def weight_hash(self, run: Run) -> str:
        """Compute the hash of all stages as one model."""
        return weight_hash(_merge(self._world.gather(_on_cpu(dict(run.module.named_parameters())))).items())

    def _predict(self, images: Tensor, labels: Tensor) -> Tensor:
        return self._broadcast(self._schedule(labels, trains=False).eval(**self._inputs(images, labels)), labels)

    def _inputs(self, images: Tensor, labels: Tensor) -> dict[str, Any]:
        """Make the micro-batches that this rank feeds into the schedule: images on rank 0, labels on the last rank."""
        count = count_micro_batches(len(labels), self._context.options.micro_batches)
        inputs: dict[str, Any] = {}
        if self._run.rank == 0:
            inputs["arg_mbs"] = [(chunk,) for chunk in images.tensor_split(count)]
        if self._run.rank == self._last:
            inputs["target_mbs"] = list(labels.tensor_split(count))
        return inputs

    def _broadcast(self, logits: Tensor | None, labels: Tensor) -> Tensor:
        """Send the last rank's logits to every rank: they are small, and then all can compute loss and accuracy."""
        if logits is None:
            logits = torch.empty(len(labels), self._context.data.shape.classes, device=self._run.device)
        logits = logits.detach().contiguous()
        dist.broadcast(logits, src=self._last)
        return logits

    def _schedule(self, labels: Tensor, *, trains: bool) -> ScheduleGPipe:
        """Make a schedule for each size of batch: it works for one only."""
        key = len(labels), trains
        if key not in self._schedules:
            stage = PipelineStage(self._run.module, self._run.rank, self._run.world_size, self._run.device)
            count = count_micro_batches(len(labels), self._context.options.micro_batches)
            self._schedules[key] = ScheduleGPipe(stage, count, loss_fn=cross_entropy)
        return self._schedules[key]


def count_micro_batches(samples: int, maximum: int) -> int:
    """Find the largest number up to ``maximum`` that divides ``samples``: micro-batches must have the same size."""
    return max(count for count in range(1, maximum + 1) if samples % count == 0)


class PipelineStrategy(NoStrategy):
    """Every rank has a stage of the model and sees every whole batch; a snapshot holds the full model."""

    is_sharded = True

    def wrap(self, model: nn.Module, world: World) -> nn.Module:
        self._world = world
        return model

    def data_shard(self, world: World) -> tuple[int, int]:
        return 0, 1

    def stateful_parts(self, model: nn.Module, parts: dict[str, Stateful]) -> tuple[Stateful, dict[str, Stateful]]:
        full = {
            name: _FullOptimizer(model, part, self._world) if isinstance(part, torch.optim.Optimizer) else part
            for name, part in parts.items()
        }
        return _FullModel(model, self._world), full


class _FullModel:
    """Stateful for the stages of all ranks, as one model."""

    def __init__(self, stage: nn.Module, world: World) -> None:
        self._stage, self._world = stage, world

    def state_dict(self) -> dict[str, Any]:
        return _merge(self._world.gather(_on_cpu(dict(self._stage.state_dict()))))

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        self._stage.load_state_dict({name: state[name] for name in self._stage.state_dict()})


class _FullOptimizer:
    """Stateful for the optimizers of all stages; states are keyed by the parameters' names in the full model."""

    def __init__(self, stage: nn.Module, optimizer: torch.optim.Optimizer, world: World) -> None:
        self._stage, self._optimizer, self._world = stage, optimizer, world

    def state_dict(self) -> dict[str, Any]:
        own = get_optimizer_state_dict(self._stage, self._optimizer)
        stages: list[dict[str, Any]] = self._world.gather(_on_cpu(dict(own)))
        groups = [{**group} for group in stages[0]["param_groups"]]
        for index, group in enumerate(groups):
            group["params"] = [name for stage in stages for name in stage["param_groups"][index]["params"]]
        return {"state": _merge([stage["state"] for stage in stages]), "param_groups": groups}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        own = {name for name, _ in self._stage.named_parameters()}
        groups = [
            {**group, "params": [name for name in group["params"] if name in own]} for group in state["param_groups"]
        ]
        states = {name: value for name, value in state["state"].items() if name in own}
        set_optimizer_state_dict(
            self._stage,
            self._optimizer,
            {"state": states, "param_groups": groups},
            options=StateDictOptions(strict=False),  # a parameter that never had a gradient has no state
        )


def _on_cpu(value: Any) -> Any:
    """Copy tensors to the CPU: every rank would unpickle those of the others onto their GPUs, and hold memory there."""
    return map_tensors(value, lambda _, tensor: tensor.detach().cpu())


def _merge(states: list[dict[str, Any]]) -> dict[str, Any]:
    return {name: value for state in states for name, value in state.items()}


if __name__ == "__main__":
    main()
