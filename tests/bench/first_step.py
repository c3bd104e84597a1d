"""Submit to first step: a job that a spare keeper starts, a cold one, and bare torchrun, alternating in one run.

    OMP_NUM_THREADS=1 python tests/bench/first_step.py --rounds 10

Two ranks make one step of a small model under DDP; what the script itself takes, from its first line (its own import of
torch included) to the end of the first step, is part of each time and shown apart. A spare keeper's own memory is
what no other process shares with it.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import psutil
from side_by_side import await_end, percentile_95, server

from rekindle_service.client import Client

SCRIPT = """\
import time
began = time.time()
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.ones(4, 8)).sum().backward()
optimizer.step()
if dist.get_rank() == 0:
    with open(os.environ["BENCH_RESULT"], "w") as file:
        file.write(f"{time.time()} {time.time() - began}\\n")
dist.barrier()
dist.destroy_process_group()
"""
MIB = 1 << 20
SPARE = "rekindle-spare"  # name of its process, once it is ready
Times = tuple[float, float]  # seconds: to the first step; of these, in the script


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="first-step-") as name, ExitStack() as stack:
        directory = Path(name)
        (directory / "code").mkdir()
        (directory / "code" / "train.py").write_text(SCRIPT)
        warm = stack.enter_context(server(directory / "warm", REKINDLE_SPARE_KEEPERS="1", REKINDLE_SPARE_MEMORY="0"))
        cold = stack.enter_context(server(directory / "cold", REKINDLE_SPARE_KEEPERS="0"))
        await_spare()
        starts: dict[str, Callable[[Path], None]] = {
            "torchrun": lambda result: run_bare(directory, result),
            "cold": lambda result: run_served(cold, directory, result),
            "warm": lambda result: run_served(warm, directory, result),
        }
        times: dict[str, list[Times]] = {each: [] for each in starts}
        for number in range(options.rounds):
            for each, start in starts.items():
                times[each].append(measure(start, directory / f"{each}-{number}"))
                print(each, *(f"{seconds:.2f}" for seconds in times[each][-1]), flush=True)
        report(times)


def measure(start: Callable[[Path], None], result: Path) -> Times:
    """``start`` returns when the job has ended."""
    began = time.time()
    start(result)
    first_step, script = map(float, result.read_text().split())
    return first_step - began, script


def run_bare(directory: Path, result: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "train.py"]
    environment = {**os.environ, "BENCH_RESULT": str(result), "OMP_NUM_THREADS": "1"}
    subprocess.run(command, cwd=directory / "code", env=environment, check=True, stdout=subprocess.DEVNULL)


def run_served(client: Client, directory: Path, result: Path) -> None:
    body = {"script": "train.py", "code": {"path": str(directory / "code")}, "ranks": 2, "device": "cpu"}
    job = client.submit({**body, "env": {"BENCH_RESULT": str(result)}})["id"]
    await_end(client, job)


def await_spare() -> None:
    """Until one waits for requests; prints its memory."""
    while not (spares := list(filter(_is_spare, psutil.Process().children(recursive=True)))):
        time.sleep(0.2)
    memory = spares[0].memory_full_info()
    print(f"spare keeper: {memory.rss / MIB:.0f} MiB resident, of which {memory.uss / MIB:.0f} MiB are its own")


def _is_spare(process: psutil.Process) -> bool:
    try:
        return process.name() == SPARE
    except psutil.NoSuchProcess:
        return False


def report(times: dict[str, list[Times]]) -> None:
    medians = {}
    for name, results in times.items():
        totals, scripts = zip(*results, strict=True)
        medians[name] = statistics.median(totals)
        script, p95 = statistics.median(scripts), percentile_95(totals)
        print(
            f"{name:9} to the first step: median {medians[name]:.2f} s, p95 {p95:.2f} s; in the script {script:.2f} s"
        )
    for name in ("torchrun", "cold"):
        print(f"ratio of the medians {name} / warm: {medians[name] / medians['warm']:.1f}")


if __name__ == "__main__":
    main()
