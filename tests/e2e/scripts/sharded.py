"""A model divided among the ranks, in one of several ways; saves its whole state after restoring and at the end.

Runs in the current directory. Rank 0 saves the state gathered from all ranks: ``restored-<ranks>-<way>.pt`` on entering
``Run``, ``trained-<step>.pt`` at the end.
"""

import argparse

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import TensorDataset

from rekindle import Run, SnapshotPolicy
from rekindle.recipes.training_context import process_group
from rekindle.training.sharded_strategy import ShardedStrategy
from rekindle.training.strategy import DDPStrategy


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--way", choices=["fsdp", "hybrid", "both", "ddp"], default="fsdp")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--start-from")
    parser.add_argument("--spare", action="store_true", help="add a layer that is left out until the second epoch")
    parser.add_argument("--forget", action="store_true", help="leave the optimizer out")
    return parser.parse_args()


class Counter(nn.Module):
    """Has what is never divided: a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        return x


class Spare(nn.Linear):
    """A layer that does nothing, and gets no gradient, until it is ``used``."""

    used = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) if self.used else x


def build(width: int, *, spare: bool) -> nn.Module:
    """Hardly a size divides evenly: some ranks get less than others, or nothing."""
    torch.manual_seed(0)
    layers = nn.Linear(7, width), nn.ReLU(), nn.Linear(width, 10), Counter(), nn.Linear(10, 5), nn.Linear(5, 1)
    return nn.Sequential(*layers, *([Spare(1, 1)] if spare else []))


def divide(model: nn.Module, way: str, ranks: int) -> None:
    if way == "ddp":
        return
    if way == "fsdp":
        mesh = init_device_mesh("cpu", (ranks,))
    elif way == "hybrid":
        mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("replicate", "shard"))
    else:
        whole = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("data", "tensor"))
        parallelize_module(model, whole["tensor"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
        mesh = whole["data"]
    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)


def whole_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict:
    """On rank 0."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    return {
        "model": get_model_state_dict(model, options=options),
        # of an optimizer that has no state yet, torch would make one by a step that counts
        "optimizer": get_optimizer_state_dict(model, optimizer, options=options) if optimizer.state else {},
    }


def main() -> None:
    options = read_options()
    x = torch.randn(48, 7, generator=torch.Generator().manual_seed(1))
    data = TensorDataset(x, x.sum(1, keepdim=True))
    with process_group() as world:
        model = build(options.width, spare=options.spare)
        divide(model, options.way, world.size)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, foreach=False)
        with Run(
            model=model,
            optimizer=None if options.forget else optimizer,
            device="cpu",
            snapshot_policy=SnapshotPolicy(every_steps=2),
            strategy=DDPStrategy() if options.way == "ddp" else ShardedStrategy(),
            start_from=options.start_from,
        ) as run:
            keep(run, f"restored-{world.size}-{options.way}.pt", optimizer)
            for epoch in run.epochs(options.epochs):
                Spare.used = epoch > 0
                for a, b in run.batches(data, global_batch=16):
                    optimizer.zero_grad()
                    loss = nn.functional.mse_loss(run.model(a), b) * run.batch_weight
                    loss.backward()
                    optimizer.step()
            keep(run, f"trained-{run.step}.pt", optimizer)


def keep(run: Run, name: str, optimizer: torch.optim.Optimizer) -> None:
    state = whole_state(run.module, optimizer)
    if run.rank == 0:
        torch.save(state, name)


if __name__ == "__main__":
    main()
