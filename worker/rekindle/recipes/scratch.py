"""Recipe: train LeNet with plain tensors, a hand-written all-reduce and a hand-written SGD.

    torchrun --nproc-per-node 2 -m rekindle.recipes.scratch --all-reduce ring
    rekindle submit --recipe scratch --ranks 2 --all-reduce naive

The batch is split into k shards, one per rank. Each rank computes the gradient of its shard, the gradients are summed,
and every rank takes the same step. This is what DistributedDataParallel does, and the weights agree with those of
recipe ``ddp --model lenet`` up to rounding.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d, cross_entropy, linear

from rekindle.recipes import data
from rekindle.recipes.all_reduce import ALGORITHMS
from rekindle.recipes.loop import fit
from rekindle.recipes.models import lenet
from rekindle.recipes.training_context import TrainingContext, start_recipe
from rekindle.training.method import Bare
from rekindle.training.run import Run

NAMES = ("w1", "b1", "w2", "b2", "w3", "b3", "w4", "b4")


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
        images = data.load(options, world)
        model = PlainLeNet(images.shape.classes, images.shape.channels).to(world.device)
        optimizer = PlainSGD(list(model.parameters()), options.lr)
        context = TrainingContext(options, images, optimizer, world.device, data_parallel_size=world.size)
        with context.run(model, Bare()) as run:
            fit(run, context, lambda run, context, batch: train_step(run, context, optimizer, *batch))


def train_step(run: Run, context: TrainingContext, optimizer: PlainSGD, images: Tensor, labels: Tensor) -> None:
    """Gradient of this rank's shard, sum over all ranks, step."""
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
