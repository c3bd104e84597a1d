"""Two ranks, of which one does not come to the second collective of the first attempt. Argument: where it stays."""

import os
import sys
import time

import torch
import torch.distributed as dist

count, ranks = torch.cuda.device_count(), int(os.environ["WORLD_SIZE"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % count) if count else torch.device("cpu")


def synchronizes():
    torch.cuda._sleep(10**14)
    torch.ones(1, device=device).item()


def sleeps():
    time.sleep(3600)


dist.init_process_group("nccl" if count >= ranks else "gloo")
dist.all_reduce(torch.ones(8, device=device))
print("step 1", flush=True)
if dist.get_rank() == 1 and os.environ["REKINDLE_ATTEMPT"] == "1":
    globals()[sys.argv[1]]()
total = torch.ones(8, device=device)
dist.all_reduce(total)
total.sum().item()
dist.destroy_process_group()
