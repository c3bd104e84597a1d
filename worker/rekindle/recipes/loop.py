"""The training loop that the recipes share; a recipe decides how model and step are divided among the ranks."""

import hashlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy

from rekindle.recipes.data_sets import evaluation_batches
from rekindle.recipes.training_context import Count, EpochScore, TrainingContext, micro_accuracy
from rekindle.training.data_loading import length_of, to_device
from rekindle.training.process_group import World
from rekindle.training.run import Run
from rekindle.training.step_boundary import NonFiniteError

_PRECISIONS = {"no": None, "bf16": torch.bfloat16, "fp16": torch.float16}

_DIGITS_OF_DIGEST = 8  # that are logged as a number, whose sum over the ranks must be exact

Step = Callable[[Run, TrainingContext, Any], None]
"""Trains on one item of ``run.batches``, logs the loss and updates the metrics."""


def print_line(rank_of: Run | World, text: str) -> None:
    """Print in one write, so that lines of ranks that share a terminal do not mix."""
    sys.stdout.write(f"[rank {rank_of.rank}] {text}\n")
    sys.stdout.flush()


def weight_hash(parameters: Iterable[tuple[str, Tensor]]) -> str:
    """Compute SHA-256 over all names and bytes: equal only where every bit of two trainings is.

    Sharded parameters (DTensors) are gathered: then all ranks must call it.
    """
    sha256 = hashlib.sha256()
    for name, parameter in parameters:
        full = parameter.detach()
        if isinstance(full, DTensor):
            full = full.full_tensor()
        data = full.cpu().contiguous().flatten().view(torch.uint8)
        sha256.update(name.encode() + data.numpy().tobytes())
    return sha256.hexdigest()


def model_hash(run: Run) -> str:
    """Compute the weight hash of the whole model. All ranks call it."""
    return weight_hash(run.module.named_parameters())


def train_step(run: Run, context: TrainingContext, batch: Any) -> None:
    """Run forward and backward pass of each micro-batch, then the step of the optimizer."""
    context.optimizer.zero_grad()
    for images, labels in run.microbatches(batch):
        run.log(loss=accumulate_gradients(run, context, images, labels))
    context.scaler.step(cast("torch.optim.Optimizer", context.optimizer))  # a hand-written one has its own step
    context.scaler.update()


def accumulate_gradients(run: Run, context: TrainingContext, images: Tensor, labels: Tensor) -> Tensor:
    """Run both passes in micro-batches; ranks average gradients in the last one. Returns the mean loss."""
    steps = context.options.accumulate
    if len(labels) < steps:
        raise ValueError(
            f"a batch of {len(labels)} samples on this rank cannot be split into {steps} micro-batches; give a larger "
            "--batch-size or a smaller --accumulate"
        )
    loss = torch.zeros((), device=run.device)
    microbatches = list(zip(images.tensor_split(steps), labels.tensor_split(steps), strict=True))
    for index, (x, y) in enumerate(microbatches, start=1):
        with nullcontext() if index == steps else run.no_sync():
            contribution = forward(run, context, x, y) * (len(y) / len(labels))
            scaled: Tensor = context.scaler.scale(contribution * run.batch_weight)
            scaled.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        loss += contribution.detach()
    return loss


def forward(run: Run, context: TrainingContext, images: Tensor, labels: Tensor) -> Tensor:
    """Compute the mean loss, in the precision of the options, and update the metrics."""
    precision = _PRECISIONS[context.options.amp]
    with torch.autocast(run.device.type, precision, enabled=precision is not None):
        logits = run.model(images)
        loss = cross_entropy(logits, labels)
    context.metrics.update(loss, logits, labels)
    return loss


def evaluate(run: Run, context: TrainingContext) -> float:
    """Compute the test accuracy over all ranks, exact or padded as the options say."""
    with run.evaluation() as model:
        return accuracy_of(run, context, lambda images, _: model(images))


def compare_evaluations(run: Run, context: TrainingContext) -> None:
    """Log the padded accuracy, and the one that rank 0 counts alone, sample by sample.

    Where the model is sharded, all ranks run its forward pass together with rank 0.
    """
    test, ranks = context.data.test, context.batch.data_parallel_size
    with run.evaluation() as model:
        padded = accuracy_of(run, context, lambda images, _: model(images), mode="padded")
        sharded = any(isinstance(parameter, DTensor) for parameter in model.parameters())
        if run.rank == 0 or sharded:
            batches = evaluation_batches(test, "exact", rank=0, ranks=1, workers=context.options.workers)
            moved = (to_device(batch, run.device) for batch in batches)
            correct = [int((model(images).argmax(1) == labels).sum()) for images, labels in moved]
            run.log(counted_accuracy=sum(correct) / length_of(test))
    run.log(padded_accuracy=padded, padded_samples=math.ceil(length_of(test) / ranks) * ranks)


def accuracy_of(
    run: Run, context: TrainingContext, predict: Callable[[Tensor, Tensor], Tensor], mode: str | None = None
) -> float:
    """Compute the test accuracy of ``predict(images, labels)``, which returns logits; ``mode`` replaces the option.

    Prints how many samples of this rank and of all are classified correctly; ``--evaluate compare`` logs them, too.
    """
    accuracy = micro_accuracy(context.data.shape.classes, sync_on_compute=False).to(run.device)
    rank, ranks = (run.rank, run.world_size) if context.batch.data_parallel_size > 1 else (0, 1)
    padded = (mode or context.options.evaluate) == "padded"
    mode, workers = "padded" if padded else "exact", context.options.workers
    for batch in evaluation_batches(context.data.test, mode, rank=rank, ranks=ranks, workers=workers):
        images, labels = to_device(batch, run.device)
        accuracy.update(predict(images, labels), labels)
    own = Count.of(accuracy)
    accuracy.sync()  # until the next compute
    print_line(run, f"test | {mode} | {own} correct" + (f" | all ranks: {Count.of(accuracy)}" if ranks > 1 else ""))
    if context.options.evaluate == "compare":
        run.log(**{f"{mode}_correct_{run.rank}": own.correct, f"{mode}_samples_{run.rank}": own.total})
    return float(accuracy.compute())


def fit(
    run: Run,
    context: TrainingContext,
    step: Step = train_step,
    test_accuracy: Callable[[Run, TrainingContext], float] = evaluate,
    model_hash: Callable[[Run], str] = model_hash,
) -> None:
    """Train all remaining epochs, evaluate after each, and print the accuracy and the hash of the weights."""
    options = context.options
    if run.rank == 0:
        print_line(run, f"{context.data}")
    print_line(run, f"{context.batch} | lr {context.learning_rate.peak:.4f} | {options.evaluate} evaluation")
    with nan_hint(options.lr):
        for epoch in run.epochs(options.epochs):
            train_epoch(run, context, epoch, step)
            run.log(test_accuracy=test_accuracy(run, context))
            if options.evaluate == "compare":
                compare_evaluations(run, context)
    print_line(run, f"test accuracy {test_accuracy(run, context):.4f}")
    digest = model_hash(run)
    run.log(weights=int(digest[:_DIGITS_OF_DIGEST], 16))
    print_line(run, f"weights sha256 {digest}")


@contextmanager
def nan_hint(lr: float) -> Iterator[None]:
    """Add to a NonFiniteError which option of the recipe to change."""
    try:
        yield
    except NonFiniteError as error:
        raise NonFiniteError(
            f"{error}. The recipe trained with --lr {lr:g}: give a smaller one, or add --warmup-steps"
        ) from error


def train_epoch(run: Run, context: TrainingContext, epoch: int, step: Step) -> None:
    """Train what is left of an epoch, then log how it went."""
    options, train_set = context.options, context.data.train
    started, first = time.monotonic(), run.step
    context.metrics.reset()
    size, shuffle, workers = context.batch.global_batch, options.shuffle, options.workers
    for batch in run.batches(train_set, global_batch=size, shuffle=shuffle, num_workers=workers):
        for group in context.optimizer.param_groups:
            group["lr"] = context.learning_rate.at(run.step, epoch)
        step(run, context, batch)
        run.log(lr=context.optimizer.param_groups[0]["lr"])
        pause(options.throttle)
    this_rank = context.metrics.this_rank()  # waits for the device, so that its time counts
    seconds = time.monotonic() - started
    samples = context.batch.samples_in_last(run.step - first, length_of(train_set))
    log_epoch(run, context, this_rank, seconds, samples / seconds)


def log_epoch(run: Run, context: TrainingContext, this_rank: EpochScore, seconds: float, speed: float) -> None:
    """Print the scores of this rank and of all ranks, and log the latter. ``speed`` is in samples/s of all ranks.

    The load average of the machine over one minute shows how reliable the times are. All ranks call it.
    """
    all_ranks, batch, length = context.metrics.all_ranks(), context.batch, length_of(context.data.train)
    shared = f"all ranks: {all_ranks} | " if batch.data_parallel_size > 1 else ""
    lr, own_batch = context.optimizer.param_groups[0]["lr"], batch.of_rank(run.rank)
    print_line(
        run,
        f"epoch {run.epoch} | batch {own_batch} | steps {batch.steps(length)} | lr {lr:.4f} | {this_rank} | "
        f"{shared}{seconds:.1f} s | {speed:.0f} samples/s",
    )
    run.log(
        accuracy=all_ranks.accuracy,
        epoch_loss=all_ranks.loss,
        samples_per_second=speed,
        epoch_seconds=seconds,
        load=os.getloadavg()[0],
    )


def pause(seconds: float) -> None:
    """Sleep, but not for 0 seconds, which would still yield the processor to other processes."""
    if seconds > 0:
        time.sleep(seconds)
