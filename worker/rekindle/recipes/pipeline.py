"""Recipe: train a model whose layers are spread over the ranks; micro-batches pass from rank to rank.

    torchrun --nproc-per-node 2 -m rekindle.recipes.pipeline --micro-batches 4
    rekindle submit --recipe pipeline --ranks 2

Rank 0 has the first layers and feeds the images, the last rank has the last layers and knows the loss. While one
micro-batch is on rank 1, the next is on rank 0: with few micro-batches the ranks mostly wait for each other.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.nn.functional import cross_entropy

from rekindle.recipes import data, models, options
from rekindle.recipes.digest import weights_sha256
from rekindle.recipes.group import joined
from rekindle.recipes.loop import Plan, count_correct, fit, make_repeatable, sgd
from rekindle.recipes.stages import Stages, cut
from rekindle.training.eval_mode import eval_mode
from rekindle.training.run import Run


def main() -> None:
    chosen = options.read_options(
        __doc__, *options.DATA, *options.SCHEDULE, "micro-batches", models=("transformer", "small-resnet", "resnet34")
    )
    make_repeatable(chosen.seed)
    with joined() as world:
        images = data.load(chosen, world)
        stage = cut(models.build(chosen.model, images.shape), world.rank, world.size).to(world.device)
        plan = Plan(chosen, images, sgd(stage, chosen), world.device, sharers=1)
        with Run(
            model=stage, optimizer=plan.optimizer, metrics=plan.tally.metrics, seed=chosen.seed, strategy=Stages()
        ) as run:
            pipeline = Pipeline(run, chosen.micro_batches)
            fit(run, plan, pipeline.train_step, pipeline.test_accuracy, whole_digest)


class Pipeline:
    """The stages of all ranks as one model."""

    def __init__(self, run: Run, micro_batches: int) -> None:
        self._run, self._micro_batches = run, micro_batches
        self._last = run.world_size - 1
        self._schedules: dict[tuple[int, bool], ScheduleGPipe] = {}

    def train_step(self, run: Run, plan: Plan, batch: Any) -> None:
        images, labels = batch
        plan.optimizer.zero_grad()
        logits = self._shared(self._schedule(labels, trains=True).step(**self._fed(images, labels)), labels, plan)
        plan.optimizer.step()
        loss = cross_entropy(logits, labels)
        plan.tally.add(loss, logits, labels)
        run.log(loss=loss)

    def test_accuracy(self, run: Run, plan: Plan) -> float:
        with run.phase("evaluate"), eval_mode(run.module):
            return count_correct(
                run,
                plan,
                lambda x, y: self._shared(self._schedule(y, trains=False).eval(**self._fed(x, y)), y, plan),
            )

    def _fed(self, images: Tensor, labels: Tensor) -> dict[str, Any]:
        """What this rank's end of the pipeline takes in: rank 0 images, the last rank labels, in micro-batches."""
        count = equal_portions(len(labels), self._micro_batches)
        fed: dict[str, Any] = {}
        if self._run.rank == 0:
            fed["arg_mbs"] = [(portion,) for portion in images.tensor_split(count)]
        if self._run.rank == self._last:
            fed["target_mbs"] = list(labels.tensor_split(count))
        return fed

    def _shared(self, logits: Tensor | None, labels: Tensor, plan: Plan) -> Tensor:
        """The logits of the last rank, on every rank: they are small, and then all can tell loss and accuracy."""
        if logits is None:
            logits = torch.empty(len(labels), plan.data.shape.classes, device=self._run.device)
        logits = logits.detach().contiguous()
        dist.broadcast(logits, src=self._last)
        return logits

    def _schedule(self, labels: Tensor, *, trains: bool) -> ScheduleGPipe:
        """A schedule is made for one size of batch."""
        key = len(labels), trains
        if key not in self._schedules:
            stage = PipelineStage(self._run.module, self._run.rank, self._run.world_size, self._run.device)
            count = equal_portions(len(labels), self._micro_batches)
            self._schedules[key] = ScheduleGPipe(stage, count, loss_fn=cross_entropy)
        return self._schedules[key]


def equal_portions(samples: int, wished: int) -> int:
    """The largest number up to ``wished`` that divides ``samples``: micro-batches must be of one size."""
    return max(count for count in range(1, wished + 1) if samples % count == 0)


def whole_digest(run: Run) -> str:
    """Of all stages as one model. All ranks call it."""
    stages: list[dict[str, Tensor]] = [{}] * run.world_size
    own = {name: parameter.detach().cpu() for name, parameter in run.module.named_parameters()}
    dist.all_gather_object(stages, own)
    return weights_sha256(item for stage in stages for item in stage.items())


if __name__ == "__main__":
    main()
