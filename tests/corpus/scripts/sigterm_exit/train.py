"""A script that people write for preemptible machines: at SIGTERM it saves and ends by sys.exit(0)."""

import argparse
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

CHECKPOINT = "last.pth"
stopping = False


def stop(signum, frame):
    global stopping
    stopping = True


def save(model, optimizer, epoch):
    if dist.get_rank() == 0:
        state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        torch.save(state, CHECKPOINT + ".tmp")
        os.replace(CHECKPOINT + ".tmp", CHECKPOINT)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--save-every", type=int, default=5)
    parser.add_argument("--pause", type=float, default=0.3, help="seconds that an epoch takes longer")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    start = 0
    if os.path.exists(CHECKPOINT):
        saved = torch.load(CHECKPOINT)
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        start = saved["epoch"]
    data = torch.randn(64, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
    flag = torch.zeros(1)
    for epoch in range(start, args.epochs):
        loss = (model(data) - data.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(args.pause)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss.item():.6f}", flush=True)
        dist.all_reduce(flag.fill_(float(stopping)), op=dist.ReduceOp.MAX)
        if flag.item() or (epoch + 1) % args.save_every == 0:
            save(model, optimizer, epoch + 1)
        if flag.item():
            dist.barrier()
            sys.exit(0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
