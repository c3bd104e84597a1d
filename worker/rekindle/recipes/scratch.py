"""Recipe: train LeNet with plain tensors, a hand-written all-reduce and a hand-written SGD.

    torchrun --nproc-per-node 2 -m rekindle.recipes.scratch --all-reduce ring
    rekindle submit --recipe scratch --ranks 2 --all-reduce naive

The batch is split into k shards, one per rank. Each rank computes the gradient of its shard, the gradients are summed,
and every rank takes the same step. This is what DistributedDataParallel does, and the weights agree with those of
recipe ``ddp --model lenet`` up to rounding.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d, cross_entropy, linear
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rekindle.recipes import data_sets
from rekindle.recipes.loop import fit
from rekindle.recipes.models import lenet
from rekindle.recipes.training_context import TrainingContext, start_recipe
from rekindle.training.run import Run
from rekindle.training.strategy import NoStrategy

NAMES = ("w1", "b1", "w2", "b2", "w3", "b3", "w4", "b4")
_BUCKET_SIZE = 1 << 18  # bytes

AllReduce = Callable[[list[Tensor]], None]
"""A function that replaces each tensor, in place, by its sum over all ranks: then all ranks hold the same bits."""


def naive(tensors: list[Tensor]) -> None:
    """Sum on rank 0, which receives all tensors and sends sums back: its link has k - 1 times the others' traffic."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for tensor in tensors:
        if rank == 0:
            received = torch.empty_like(tensor)
            for peer in range(1, ranks):
                dist.recv(received, peer)
                tensor += received
            for peer in range(1, ranks):
                dist.send(tensor, peer)
        else:
            dist.send(tensor, 0)
            dist.recv(tensor, 0)


def ring(tensors: list[Tensor]) -> None:
    """Sum all tensors as one, in k chunks that circulate: each link carries 2 (k - 1) / k of the data, whatever k is.

    Reduce-scatter: in the first k - 1 rounds every rank sends a partial sum to its right neighbor; then each chunk is
    complete on one rank. All-gather: in the next k - 1 rounds the complete chunks circulate.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    flat = parameters_to_vector(tensors)
    chunks = list(flat.tensor_split(ranks))
    for round_ in range(ranks - 1):
        received = _exchange(chunks[(rank - round_) % ranks], chunks[(rank - round_ - 1) % ranks])
        chunks[(rank - round_ - 1) % ranks] += received
    for round_ in range(ranks - 1):
        received = _exchange(chunks[(rank - round_ + 1) % ranks], chunks[(rank - round_) % ranks])
        chunks[(rank - round_) % ranks].copy_(received)
    vector_to_parameters(flat, tensors)


def bucketed(tensors: list[Tensor]) -> None:
    """Sum by torch's own all-reduce, one per bucket: few large messages, all in flight at once."""
    buckets = list(_buckets(tensors))
    flats = [parameters_to_vector(bucket) for bucket in buckets]
    in_flight = [dist.all_reduce(flat, async_op=True) for flat in flats]
    for bucket, flat, work in zip(buckets, flats, in_flight, strict=True):
        if work is not None:
            work.wait()
        vector_to_parameters(flat, bucket)


ALGORITHMS: dict[str, AllReduce] = {"naive": naive, "ring": ring, "bucketed": bucketed}


def _exchange(chunk: Tensor, expected: Tensor) -> Tensor:
    """Send ``chunk`` to the right while a tensor like ``expected`` arrives from the left."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    received = torch.empty_like(expected)
    sends = dist.P2POp(dist.isend, chunk, (rank + 1) % ranks)
    receives = dist.P2POp(dist.irecv, received, (rank - 1) % ranks)
    for work in dist.batch_isend_irecv([sends, receives]):
        work.wait()
    return received


def _buckets(tensors: list[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for tensor in tensors:
        bucket.append(tensor)
        if sum(each.nbytes for each in bucket) >= _BUCKET_SIZE:
            yield bucket
            bucket = []
    if bucket:
        yield bucket


class PlainLeNet(nn.Module):
    """Plain tensors and a function of them; a module only because ``Run`` moves and saves one."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        initial = lenet(classes, channels).parameters()  # the same initial weights as in the other recipes
        for name, tensor in zip(NAMES, initial, strict=True):
            self.register_parameter(name, nn.Parameter(tensor.detach().clone()))

    def forward(self, x: Tensor) -> Tensor:
        w1, b1, w2, b2, w3, b3, w4, b4 = self.parameters()
        x = avg_pool2d(conv2d(x, w1, b1).relu(), 2)
        x = avg_pool2d(conv2d(x, w2, b2).relu(), 2)
        x = linear(x.flatten(1), w3, b3).relu()
        return linear(x, w4, b4)


class PlainSGD:
    """Stochastic gradient descent with momentum and weight decay, as torch.optim.SGD does it."""

    def __init__(self, tensors: list[Tensor], lr: float) -> None:
        self.tensors = tensors
        self.velocities = [torch.zeros_like(tensor) for tensor in tensors]
        self.param_groups: list[dict[str, Any]] = [{"lr": lr, "momentum": 0.9, "weight_decay": 5e-4}]

    def zero_grad(self) -> None:
        for tensor in self.tensors:
            tensor.grad = None

    @torch.no_grad()
    def step(self) -> None:
        (settings,) = self.param_groups
        for tensor, velocity, gradient in zip(self.tensors, self.velocities, self.gradients(), strict=True):
            velocity *= settings["momentum"]
            velocity += gradient + settings["weight_decay"] * tensor
            tensor -= settings["lr"] * velocity

    def gradients(self) -> list[Tensor]:
        return [tensor.grad for tensor in self.tensors if tensor.grad is not None]

    def state_dict(self) -> dict[str, Any]:
        return {"velocities": self.velocities}

    def load_state_dict(self, state: dict[str, Any], /) -> None:
        for velocity, saved in zip(self.velocities, state["velocities"], strict=True):
            velocity.copy_(saved)


def main() -> None:
    with start_recipe("scratch") as (options, world):
        images = data_sets.load(options, world)
        model = PlainLeNet(images.shape.classes, images.shape.channels).to(world.device)
        optimizer = PlainSGD(list(model.parameters()), options.lr)
        context = TrainingContext(options, images, optimizer, world.device, data_parallel_size=world.size)
        with context.run(model, NoStrategy()) as run:
            fit(run, context, lambda run, context, batch: train_step(run, context, optimizer, *batch))


def train_step(run: Run, context: TrainingContext, optimizer: PlainSGD, images: Tensor, labels: Tensor) -> None:
    """Compute the gradient of this rank's shard, sum over all ranks, and step."""
    optimizer.zero_grad()
    logits = run.model(images)
    loss = cross_entropy(logits, labels)
    weighted = loss * run.batch_weight / run.world_size
    weighted.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    ALGORITHMS[context.options.all_reduce](optimizer.gradients())
    optimizer.step()
    context.metrics.update(loss, logits, labels)
    run.log(loss=loss)


if __name__ == "__main__":
    main()
