"""Trains again and again, and in each training one bit of one rank flips; prints what was found, a JSON line for each.

A training without a flip follows each of them.
"""

import argparse
import json
import random
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import TensorDataset

from rekindle import DDPStrategy, DeterministicElastic, DivergenceError, Run

STEPS, INTERVAL, BATCH = 12, 4, 24


def flip(tensor: torch.Tensor, bit: int, chance: random.Random) -> None:
    flat = tensor.detach().view(-1).view(torch.int32)
    flat[chance.randrange(flat.numel())] ^= 1 << bit


def train(way: str, chance: random.Random, directory: str, *, flips: bool) -> dict:
    torch.manual_seed(0)
    layers = [nn.Linear(6, 150), nn.BatchNorm1d(150), nn.ReLU(), nn.Dropout(0.2)]
    model = nn.Sequential(*layers, nn.Linear(150, 80), nn.Linear(80, 3))
    make = torch.optim.AdamW if chance.random() < 0.5 else torch.optim.SGD
    optimizer = make(model.parameters(), lr=0.01)
    x = torch.randn(STEPS * BATCH, 6, generator=torch.Generator().manual_seed(1))
    names = [name for name, _ in model.named_parameters() if name != "0.bias"]  # whose gradient is 0
    name = chance.choice(names)
    case = {"step": chance.randrange(1, STEPS + 1), "rank": chance.randrange(dist.get_world_size()), "name": name}
    case["of"] = chance.choice(["gradients", "parameters"])
    found = None
    strategy = DeterministicElastic(4) if way == "elastic" else DDPStrategy()
    scaler = torch.amp.GradScaler("cpu") if way == "amp" else None
    try:
        with Run(
            model=model, optimizer=optimizer, scaler=scaler, strategy=strategy, device="cpu", directory=directory,
            digests=INTERVAL, on_divergence="stop",
        ) as run:  # fmt: skip
            for _ in run.epochs(1):
                for batch in run.batches(TensorDataset(x), global_batch=BATCH):
                    now = flips and run.step + 1 == case["step"] and run.rank == case["rank"]
                    optimizer.zero_grad()
                    forward_backward(run, batch, way, scaler)
                    if scaler is not None:
                        scaler.unscale_(optimizer)
                    parameter = dict(model.named_parameters())[name]
                    if now and case["of"] == "gradients":
                        flip(parameter.grad, 22, chance)  # a lower one may be lost where it is added to a weight
                    if scaler is None:
                        optimizer.step()
                    else:
                        scaler.step(optimizer)
                        scaler.update()
                    if now and case["of"] == "parameters":
                        flip(parameter, chance.randrange(23), chance)
    except DivergenceError as error:
        found = str(error)
    return {"way": way, "flipped": flips, **case, "found": found}


def forward_backward(run: Run, batch: list, way: str, scaler: torch.amp.GradScaler | None) -> None:
    if way == "elastic":
        for (microbatch,) in run.microbatches(batch):
            (run.model(microbatch).square().mean() * run.batch_weight).backward()
    elif way == "accumulate":
        first, second = batch[0].chunk(2)
        with run.no_sync():
            run.model(first).square().mean().div(2).backward()
        run.model(second).square().mean().div(2).backward()
    elif scaler is not None:
        with torch.autocast("cpu", torch.bfloat16):
            loss = run.model(batch[0]).square().mean()
        scaler.scale(loss).backward()
    else:
        run.model(batch[0]).square().mean().backward()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ways", nargs="+", default=["ddp", "amp", "accumulate", "elastic"])
    options = parser.parse_args()
    dist.init_process_group("gloo")
    for way in options.ways:
        for index in range(options.times):
            for flips in (True, False):
                chance = random.Random(f"{options.seed} {way} {index}")
                place = [tempfile.mkdtemp()]
                dist.broadcast_object_list(place)
                result = train(way, chance, str(Path(place[0]) / "snapshots"), flips=flips)
                if dist.get_rank() == 0:
                    sys.stdout.write(json.dumps(result) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
