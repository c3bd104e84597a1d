"""Adds up numbers over all ranks, a step every 50 ms, for as many steps as its argument says."""

import sys
import time

import torch
import torch.distributed as dist


def main():
    dist.init_process_group("gloo")
    for step in range(1, int(sys.argv[1]) + 1):
        dist.all_reduce(torch.ones(1000))
        print(f"step {step}", flush=True)
        time.sleep(0.05)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
