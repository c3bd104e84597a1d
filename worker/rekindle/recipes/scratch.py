"""Recipe: train LeNet from first principles: plain tensors, hand-made all-reduce, hand-made SGD.

    torchrun --nproc-per-node 2 -m rekindle.recipes.scratch --all-reduce ring
    rekindle submit --recipe scratch --ranks 2 --all-reduce naive

The batch is cut in k portions, one for each rank. Each rank computes the gradient of its portion, the gradients are
added up, and every rank takes the same step: this is what DistributedDataParallel does, and the weights agree with
those of recipe ``ddp --model lenet`` up to rounding.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, conv2d, cross_entropy, linear

from rekindle.recipes import data, options
from rekindle.recipes.all_reduce import WAYS
from rekindle.recipes.group import joined
from rekindle.recipes.lenet import SIDE, lenet
from rekindle.recipes.loop import Plan, fit, make_repeatable
from rekindle.training.run import Run
from rekindle.training.strategies.strategy import NoStrategy

NAMES = ("w1", "b1", "w2", "b2", "w3", "b3", "w4", "b4")


class PlainLeNet(nn.Module):
    """Plain tensors and a function of them; a module only so far as ``Run`` needs one to move and save it."""

    def __init__(self, classes: int, channels: int) -> None:
        super().__init__()
        drawn = lenet(classes, channels).parameters()  # the same first weights as the other recipes have
        for name, tensor in zip(NAMES, drawn, strict=True):
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
    chosen = options.read_options(
        __doc__, *options.DATA, *options.SCHEDULE, *options.SHARED_BATCH, "all-reduce", model="lenet"
    )
    make_repeatable(chosen.seed)
    with joined() as world:
        images = data.load(chosen, world, side=SIDE)
        model = PlainLeNet(images.shape.classes, images.shape.channels).to(world.device)
        optimizer = PlainSGD(list(model.parameters()), chosen.lr)
        plan = Plan(chosen, images, optimizer, world.device, sharers=world.size)
        with Run(
            model=model, optimizer=optimizer, metrics=plan.tally.metrics, seed=chosen.seed, strategy=NoStrategy()
        ) as run:
            fit(run, plan, lambda run, plan, batch: scratch_step(run, plan, optimizer, *batch))


def scratch_step(run: Run, plan: Plan, optimizer: PlainSGD, images: Tensor, labels: Tensor) -> None:
    """Gradient of this rank's portion, sum over all ranks, step."""
    optimizer.zero_grad()
    logits = run.model(images)
    loss = cross_entropy(logits, labels)
    portion = loss * run.batch_weight / run.world_size
    portion.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
    WAYS[plan.options.all_reduce](optimizer.gradients())
    optimizer.step()
    plan.tally.add(loss, logits, labels)
    run.log(loss=loss)


if __name__ == "__main__":
    main()
