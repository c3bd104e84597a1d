"""python -m speller.train"""

import argparse
import logging
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import checkpoints
from .model import build

logger = logging.getLogger("speller")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--run-dir", default="runs/default")
    parser.add_argument("--pause", type=float, default=0.3, help="seconds that an epoch takes longer")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = build(16)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    start = checkpoints.load_latest(args.run_dir, net=net, optimizer=optimizer)
    model = DistributedDataParallel(net)
    data = torch.randn(64, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
    for epoch in range(start, args.epochs):
        loss = (model(data) - data.sum(1, keepdim=True)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(args.pause)
        if dist.get_rank() == 0:
            checkpoints.save(args.run_dir, epoch, net=net, optimizer=optimizer)
            logger.info("epoch=%d train_loss=%.6f", epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
