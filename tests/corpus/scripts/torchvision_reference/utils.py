"""What the reference scripts share: the process group, output of rank 0 only, saving on rank 0 only."""

import builtins
import os
import time

import torch
import torch.distributed as dist


def setup_for_distributed(is_master):
    """Silence every process but the master, unless it prints with force=True."""
    builtin_print = builtins.print

    def print_on_master(*args, **kwargs):
        force = kwargs.pop("force", False)
        if is_master or force:
            builtin_print(*args, **kwargs)

    builtins.print = print_on_master


def init_distributed_mode(args):
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        args.rank = int(os.environ["RANK"])
        args.world_size = int(os.environ["WORLD_SIZE"])
        args.gpu = int(os.environ["LOCAL_RANK"])
    else:
        print("Not using distributed mode")
        args.distributed = False
        return
    args.distributed = True
    print(f"| distributed init (rank {args.rank}): {args.dist_url}", flush=True)
    dist.init_process_group("gloo", init_method=args.dist_url, world_size=args.world_size, rank=args.rank)
    dist.barrier()
    setup_for_distributed(args.rank == 0)


def save_on_master(*args, **kwargs):
    if not dist.is_initialized() or dist.get_rank() == 0:
        torch.save(*args, **kwargs)


class MetricLogger:
    """Prints a line for every print_freq batches, with averages over the epoch."""

    def __init__(self, delimiter="  "):
        self.delimiter = delimiter
        self.sums = {}

    def update(self, **values):
        for name, value in values.items():
            total, count = self.sums.get(name, (0.0, 0))
            self.sums[name] = (total + value, count + 1)

    def __str__(self):
        return self.delimiter.join(f"{name}: {total / count:.4f}" for name, (total, count) in self.sums.items())

    def log_every(self, iterable, print_freq, header):
        started = time.time()
        for i, item in enumerate(iterable):
            yield item
            if i % print_freq == 0 or i == len(iterable) - 1:
                eta = (time.time() - started) / (i + 1) * (len(iterable) - i - 1)
                print(
                    f"{header}{self.delimiter}[{i}/{len(iterable)}]{self.delimiter}eta: {eta:.1f}{self.delimiter}{self}"
                )
        print(f"{header} Total time: {time.time() - started:.1f}")
