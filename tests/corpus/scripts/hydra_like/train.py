"""The shape of a script under Hydra: the working directory becomes outputs/date/time, the checkpoint is relative."""

import logging
import os
import time

import torch
import torch.distributed as dist
from launcher import main as hydra_main
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger(__name__)
CHECKPOINT = "checkpoint.pt"


@hydra_main({"epochs": 20, "lr": 0.05, "pause": 0.3})
def train(cfg):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.Linear(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.lr, momentum=0.9)
    start = 0
    if os.path.exists(CHECKPOINT):
        checkpoint = torch.load(CHECKPOINT)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start = checkpoint["epoch"] + 1
        log.info("resumed from epoch %d", start)
    ddp = DDP(model)
    x = torch.randn(64, 6, generator=torch.Generator().manual_seed(dist.get_rank()))
    for epoch in range(start, cfg.epochs):
        loss = ((ddp(x) - x.sum(1, keepdim=True)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(cfg.pause)
        if dist.get_rank() == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, CHECKPOINT)
            log.info("epoch %d loss %.6f", epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
