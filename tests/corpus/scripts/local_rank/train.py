"""A script for the old torch.distributed.launch, which passed --local_rank to every process."""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1, help="local rank for distributed training on gpus")
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--output", default="latest.pt")
parser.add_argument("--pause", type=float, default=0.3, help="seconds that an epoch takes longer")
args = parser.parse_args()
torch.manual_seed(0)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
start = 0
if os.path.exists(args.output):
    saved = torch.load(args.output)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    start = saved["epoch"] + 1
if args.local_rank == -1:
    network, world_size = model, 1
else:
    dist.init_process_group("gloo", init_method="env://")
    network, world_size = DistributedDataParallel(model), dist.get_world_size()
if args.local_rank in (-1, 0):
    print(f"local rank {args.local_rank}, world size {world_size}")
data = torch.randn(64, 8, generator=torch.Generator().manual_seed(max(args.local_rank, 0)))
for epoch in range(start, args.epochs):
    loss = (network(data) - data.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(args.pause)
    if args.local_rank in (-1, 0):
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}, args.output)
        print(f"epoch {epoch} loss {loss.item():.6f}", flush=True)
