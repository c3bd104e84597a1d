"""A script that runs under torchrun and has never heard of rekindle: it meets its peers, and reports nothing."""

import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    steps, pause = int(sys.argv[1]), float(sys.argv[2])
    dist.init_process_group("gloo")
    for _ in range(steps):
        dist.all_reduce(torch.ones(1))
        time.sleep(pause)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
