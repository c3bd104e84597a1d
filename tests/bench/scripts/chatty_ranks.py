"""Ranks that train a little, agree on every step, and print a given number of lines a second each."""

import argparse
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

from rekindle import report

LINE = "step {step:08d} line {number:03d}: loss 0.1234567 accuracy 0.9876543 grad_norm 1.2345678 lr 1.0e-03 tokens 4096"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=int, help="a second and rank")
    parser.add_argument("--period", type=float, help="seconds of a step; what is left of them is waited, as for a GPU")
    parser.add_argument("--busy", type=float, help="seconds of processor time in a step")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weights, gradient = torch.randn(64, 64), torch.ones(1000)
    per_step = round(options.lines * options.period)
    step = 0
    with Path(os.environ["BENCH_DIR"], f"steps-{rank}.log").open("a", buffering=1) as log:
        while True:
            began = time.monotonic()
            until = time.thread_time() + options.busy
            while time.thread_time() < until:
                weights @ weights
            dist.all_reduce(gradient)
            step += 1
            print("\n".join(LINE.format(step=step, number=number) for number in range(per_step)), flush=True)
            report(step=step, loss=1 / step)
            log.write(f"{step} {os.getpid()} {time.time()}\n")
            time.sleep(max(0.0, began + options.period - time.monotonic()))


main()
