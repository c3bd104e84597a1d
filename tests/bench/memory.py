"""Memory of two ranks and all that starts and watches them: under torchrun, and under rekindle with a spare keeper.

    python tests/bench/memory.py

A page that several processes share counts once (the sum of their ``Pss``). The ranks train a small model under DDP.
rekindle's server is not counted: there is one for all jobs.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

import psutil
from side_by_side import await_end, await_spare, server

SCRIPT = """\
import os, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(20):
    model(torch.randn(4, 8)).sum().backward()
    optimizer.step()
open(f"{os.environ['BENCH_DIR']}/{dist.get_rank()}", "w").close()
while not os.path.exists(f"{os.environ['BENCH_DIR']}/end"):
    time.sleep(0.1)
"""
KIB, MIB = 1 << 10, 1 << 20


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="memory-") as name:
        bare, served = under_torchrun(Path(name)), under_rekindle(Path(name))
    print(f"torchrun {bare // MIB} MiB, rekindle with spare keeper {served // MIB} MiB: {served / bare:.2f}")


def under_torchrun(directory: Path) -> int:
    code, place = prepare(directory / "bare")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", code / "train.py"]
    process = subprocess.Popen(command, env={**os.environ, "BENCH_DIR": str(place), "OMP_NUM_THREADS": "1"})
    await_ranks(place)
    agent = psutil.Process(process.pid)
    shared = bytes_of([agent, *agent.children(recursive=True)])
    (place / "end").touch()
    process.wait(60)
    return shared


def under_rekindle(directory: Path) -> int:
    """Measure a second job, since the first one starts without a spare keeper."""
    settings = {"OMP_NUM_THREADS": "1", "REKINDLE_SPARE_KEEPERS": "1", "REKINDLE_SPARE_MEMORY": "0"}
    with server(directory / "home", **settings) as client:
        (serving,) = psutil.Process().children()
        for name in ("first", "second"):
            code, place = prepare(directory / name)
            body = {"script": "train.py", "code": {"path": str(code)}, "ranks": 2, "device": "cpu"}
            job = client.submit({**body, "env": {"BENCH_DIR": str(place)}})["id"]
            await_ranks(place)
            shared = bytes_of(serving.children(recursive=True))  # keepers are children of the spare one
            (place / "end").touch()
            await_end(client, job)
            await_spare()
    return shared


def prepare(directory: Path) -> tuple[Path, Path]:
    """A directory with the script, and one for its files."""
    for each in (directory / "code", directory / "place"):
        each.mkdir(parents=True)
    (directory / "code" / "train.py").write_text(SCRIPT)
    return directory / "code", directory / "place"


def await_ranks(place: Path) -> None:
    while not all((place / str(rank)).exists() for rank in range(2)):
        time.sleep(0.1)
    time.sleep(2)  # the keeper makes the agent of the next attempt


def bytes_of(processes: Iterable[psutil.Process]) -> int:
    total = 0
    for process in processes:
        lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
        pss = next(int(line.split()[1]) * KIB for line in lines if line.startswith("Pss:"))
        print(f"  {process.name():18} {pss // MIB:5} MiB")
        total += pss
    return total


if __name__ == "__main__":
    main()
