"""The loop that the recipes share; a recipe says how the model and the step are divided among the ranks."""

import math
import os
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy
from torchmetrics.classification import MulticlassAccuracy

from rekindle.recipes.batch_size import BatchSize
from rekindle.recipes.data import Data
from rekindle.recipes.digest import weights_sha256
from rekindle.recipes.divergence import advice
from rekindle.recipes.evaluation import evaluation_batches
from rekindle.recipes.learning_rate import LearningRate
from rekindle.recipes.options import Options
from rekindle.recipes.progress_line import say, tell_epoch
from rekindle.recipes.tally import Totals
from rekindle.training.data.data_loading import length_of, to_device
from rekindle.training.run import Run

_PRECISIONS = {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def make_repeatable(seed: int) -> None:
    """Call it before the model is built: weights are drawn from ``seed``, the same on every rank."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it, cuBLAS refuses to be deterministic
    torch.use_deterministic_algorithms(True)
    # filling memory costs some percent, and nothing here reads what was never written
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # set up at run time
    torch.backends.cudnn.benchmark = False
    torch.manual_seed(seed)


def sgd(model: nn.Module, options: Options) -> torch.optim.SGD:
    """The learning rate is set at every step."""
    return torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=5e-4)


class Optimizer(Protocol):
    """What the loop needs of torch's optimizers, and of a hand-made one."""

    param_groups: list[dict[str, Any]]

    def zero_grad(self) -> None: ...

    def step(self) -> Any: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any], /) -> None: ...


@dataclass(slots=True)
class Plan:
    """What the loop needs beside ``Run``. ``sharers`` ranks divide each batch."""

    options: Options
    data: Data
    optimizer: Optimizer
    device: torch.device
    sharers: int
    scaler: torch.amp.GradScaler = field(init=False)
    tally: Totals = field(init=False)
    batch: BatchSize = field(init=False)
    learning_rate: LearningRate = field(init=False)

    def __post_init__(self) -> None:
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.options.amp == "fp16")
        self.tally = Totals(self.data.shape.classes)
        self.batch = BatchSize.choose(self.options, self.sharers)
        self.learning_rate = LearningRate.choose(self.options, self.batch.growth)


Step = Callable[[Run, Plan, Any], None]
"""Trains on what ``run.batches`` has given, logs the loss and adds to the tally."""


def train_step(run: Run, plan: Plan, batch: Any) -> None:
    """Forward and backward pass of each part of the batch, then the step."""
    plan.optimizer.zero_grad()
    for images, labels in run.microbatches(batch):
        run.log(loss=add_gradients(run, plan, images, labels))
    plan.scaler.step(cast("torch.optim.Optimizer", plan.optimizer))  # a hand-made one comes with a step of its own
    plan.scaler.update()


def add_gradients(run: Run, plan: Plan, images: Tensor, labels: Tensor) -> Tensor:
    """Forward and backward pass in portions; the ranks share gradients during the last one. Returns the mean loss."""
    refuse_empty_portions(len(labels), plan.options.accumulate)
    loss = torch.zeros((), device=run.device)
    portions = list(zip(*(each.tensor_split(plan.options.accumulate) for each in (images, labels)), strict=True))
    for index, (x, y) in enumerate(portions):
        with nullcontext() if index + 1 == len(portions) else run.no_sync():
            part = classify(run, plan, x, y) * (len(y) / len(labels))
            scaled: Tensor = plan.scaler.scale(part * run.batch_weight)
            scaled.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        loss += part.detach()
    return loss


def classify(run: Run, plan: Plan, images: Tensor, labels: Tensor) -> Tensor:
    """The mean loss, in the precision that was asked for; adds to the tally."""
    precision = _PRECISIONS[plan.options.amp]
    with torch.autocast(run.device.type, precision, enabled=precision is not None):
        logits = run.model(images)
        loss = cross_entropy(logits, labels)
    plan.tally.add(loss, logits, labels)
    return loss


def accuracy_on_test(run: Run, plan: Plan) -> float:
    """Of all ranks together, exact or padded as the options say."""
    with run.evaluation() as model:
        return count_correct(run, plan, lambda images, _: model(images))


def compare_countings(run: Run, plan: Plan) -> None:
    """Log what padding makes of the accuracy, and what rank 0 counts alone, sample by sample.

    Where rank 0 has only a part of each layer, the others go the same way with it.
    """
    with run.evaluation() as model:
        padded = count_correct(run, plan, lambda images, _: model(images), how="padded")
        divided = any(isinstance(parameter, DTensor) for parameter in model.parameters())
        if run.rank == 0 or divided:
            batches = evaluation_batches(plan.data.test, "exact", rank=0, ranks=1, workers=plan.options.workers)
            moved = (to_device(batch, run.device) for batch in batches)
            right = [int((model(images).argmax(1) == labels).sum()) for images, labels in moved]
            run.log(counted_accuracy=sum(right) / length_of(plan.data.test))
    run.log(padded_accuracy=padded, padded_samples=math.ceil(length_of(plan.data.test) / plan.sharers) * plan.sharers)


def count_correct(run: Run, plan: Plan, predict: Callable[[Tensor, Tensor], Tensor], how: str | None = None) -> float:
    """The accuracy of ``predict``, which is given images and labels and returns logits; ``how`` beats the options."""
    accuracy = MulticlassAccuracy(plan.data.shape.classes, average="micro").to(run.device)
    rank, ranks = (run.rank, run.world_size) if plan.sharers > 1 else (0, 1)
    options = plan.options
    how = how or options.evaluate
    for batch in evaluation_batches(plan.data.test, how, rank=rank, ranks=ranks, workers=options.workers):
        images, labels = to_device(batch, run.device)
        accuracy.update(predict(images, labels), labels)
    return float(accuracy.compute())


def digest(run: Run) -> str:
    return weights_sha256(run.module.named_parameters())


def fit(
    run: Run,
    plan: Plan,
    step: Step = train_step,
    test_accuracy: Callable[[Run, Plan], float] = accuracy_on_test,
    digest: Callable[[Run], str] = digest,
) -> None:
    """Train all epochs that are left, evaluate after each, and say the accuracy and the digest of the weights."""
    options = plan.options
    say(run, f"{plan.batch} | lr {plan.learning_rate.full:.4f} | {options.evaluate} evaluation")
    with advice(options.lr):
        for epoch in run.epochs(options.epochs):
            train_epoch(run, plan, epoch, step)
            run.log(test_accuracy=test_accuracy(run, plan))
            if options.evaluate == "compare":
                compare_countings(run, plan)
    say(run, f"test accuracy {test_accuracy(run, plan):.4f}")
    say(run, f"weights sha256 {digest(run)}")


def train_epoch(run: Run, plan: Plan, epoch: int, step: Step) -> None:
    """All that is left of an epoch; then say how it went."""
    options = plan.options
    began, first = time.monotonic(), run.step
    plan.tally.reset()
    for batch in run.batches(
        plan.data.train, global_batch=plan.batch.of_all, shuffle=options.shuffle, num_workers=options.workers
    ):
        for group in plan.optimizer.param_groups:
            group["lr"] = plan.learning_rate.at(run.step, epoch)
        step(run, plan, batch)
        run.log(lr=plan.optimizer.param_groups[0]["lr"])
        pause(options.throttle)
    own = plan.tally.own()  # waits for the device, so that its time counts
    seconds = time.monotonic() - began
    samples = plan.batch.samples_in_last(run.step - first, length_of(plan.data.train))
    lr = plan.optimizer.param_groups[0]["lr"]
    tell_epoch(run, plan.batch, lr, own, plan.tally.of_all_ranks(), seconds, samples / seconds)


def pause(seconds: float) -> None:
    """For 0 it does nothing: to sleep for no time would still hand the processor to whoever waits for it."""
    if seconds > 0:
        time.sleep(seconds)


def refuse_empty_portions(samples: int, portions: int) -> None:
    if samples < portions:
        raise ValueError(
            f"a batch of {samples} samples on this rank cannot be cut in {portions} portions; give a larger "
            "--batch-size or a smaller --accumulate"
        )
