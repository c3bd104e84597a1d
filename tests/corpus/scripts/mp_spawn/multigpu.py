"""The shape of the tutorial before torchrun, multigpu.py: mp.spawn starts a process per GPU, checkpoint.pt is saved.

Kept as there: MASTER_ADDR and MASTER_PORT are set by the script, and the checkpoint is never loaded.
"""

import argparse
import os
import time

import torch
import torch.multiprocessing as mp
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP


def ddp_setup(rank, world_size, port):
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = port
    init_process_group(backend="gloo", rank=rank, world_size=world_size)


def main(rank, world_size, save_every, total_epochs, port, pause):
    ddp_setup(rank, world_size, port)
    torch.manual_seed(0)
    model = DDP(torch.nn.Linear(20, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    data = torch.rand(64, 20, generator=torch.Generator().manual_seed(rank))
    for epoch in range(total_epochs):
        optimizer.zero_grad()
        loss = ((model(data) - data.mean(1, keepdim=True)) ** 2).mean()
        loss.backward()
        optimizer.step()
        time.sleep(pause)
        if rank == 0:
            print(f"[GPU{rank}] Epoch {epoch} | Batchsize: {len(data)} | Loss: {loss.item():.6f}", flush=True)
            if epoch % save_every == 0:
                torch.save(model.module.state_dict(), "checkpoint.pt")
                print(f"Epoch {epoch} | Training checkpoint saved at checkpoint.pt", flush=True)
    destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="simple distributed training job")
    parser.add_argument("total_epochs", type=int, help="Total epochs to train the model")
    parser.add_argument("save_every", type=int, help="How often to save a checkpoint")
    parser.add_argument("--gpus", type=int, default=torch.cuda.device_count())
    parser.add_argument("--port", default="12355")
    parser.add_argument("--pause", default=0.3, type=float, help="seconds that an epoch takes longer")
    args = parser.parse_args()
    options = (args.gpus, args.save_every, args.total_epochs, args.port, args.pause)
    mp.spawn(main, args=options, nprocs=args.gpus)
