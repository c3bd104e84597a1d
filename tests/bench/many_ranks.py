"""What a job with many ranks costs the server: all ranks at once over HTTP, and its listeners.

    python tests/bench/many_ranks.py --ranks 64 --clients 10

The ranks are played: their statuses change twice a second, as those of real ranks would, and one of them logs.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx2
import psutil
from server_load import cores_used, listeners

sys.path.insert(0, str(Path(__file__).parents[1]))

from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=15)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f} before, {os.cpu_count()} cores", flush=True)
    cores, times = measured(options)
    print(
        f"{options.ranks} ranks, {options.clients} clients: server {cores[0]:.2f} cores, listeners {cores[1]:.2f} cores"
    )
    print(f"all ranks over HTTP: median {statistics.median(times):.0f} ms, p95 {times[int(0.95 * len(times))]:.0f} ms")


def measured(options: argparse.Namespace) -> tuple[list[float], list[float]]:
    """Cores of the server and of its listeners; milliseconds of requests for all ranks, ascending."""
    with tempfile.TemporaryDirectory(prefix="ranks-") as directory:
        server = ServeProcess(Path(directory), cpu_slots=options.ranks)
        server.start()
        job = PlayedJob(Path(directory), "many", ranks=options.ranks)
        job.begin_attempt()
        over = threading.Event()
        ranks = threading.Thread(target=train, args=(job, over))
        ranks.start()
        try:
            return measure(server, job, options)
        finally:
            over.set()
            ranks.join()
            job.close()
            server.stop()


def train(job: PlayedJob, over: threading.Event) -> None:
    step = 0
    while not over.wait(0.5):
        step += 1
        for rank in range(job.ranks):
            job.report(rank, step=step)
        job.write(f"step {step}\n".encode())


def measure(server: ServeProcess, job: PlayedJob, options: argparse.Namespace) -> tuple[list[float], list[float]]:
    process = psutil.Process(json.loads((server.home / "server.json").read_text())["pid"])
    with (
        httpx2.Client(base_url=server.url, headers={"Authorization": f"Bearer {server.token}"}, timeout=60) as http,
        listeners(server.url, server.token, job.id, options) as crowd,
    ):
        time.sleep(1)
        before, began, times = cores_used(process, crowd), time.monotonic(), []
        while time.monotonic() - began < options.seconds:
            asked = time.perf_counter()
            http.get(f"/api/v1/jobs/{job.id}/ranks").raise_for_status()
            times.append(1000 * (time.perf_counter() - asked))
            time.sleep(0.5)
        seconds = time.monotonic() - began
        cores = [(after - earlier) / seconds for after, earlier in zip(cores_used(process, crowd), before, strict=True)]
    return cores, sorted(times)


if __name__ == "__main__":
    main()
