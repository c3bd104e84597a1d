"""A plain DDP loop: saves nothing, or with --save weights that it never loads."""

import argparse
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--save", metavar="FILE", help="save the weights after every epoch")
parser.add_argument("--pause", type=float, default=0.3, help="seconds that an epoch takes longer")
args = parser.parse_args()
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
data = torch.randn(64, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
for epoch in range(args.epochs):
    loss = (model(data) - data.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(args.pause)
    if dist.get_rank() == 0:
        print(f"epoch {epoch} loss {loss.item():.6f}")
        if args.save:
            torch.save(model.module.state_dict(), args.save)
dist.destroy_process_group()
