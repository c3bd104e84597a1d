"""A script that was written for ``torch.distributed.launch``: it knows its local rank by an argument only."""

import argparse

import torch
import torch.distributed as dist

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--local_rank", "--local-rank", type=int, default=-1)
options = parser.parse_args()
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
print("local rank", options.local_rank, "epochs", options.epochs)
dist.destroy_process_group()
