"""What 10,000 queued and 100,000 finished jobs cost: answers of the server, processor time, memory and database.

    python tests/bench/many_jobs.py --queued 10000 --finished 100000 --requests 100

The rows are written into the database directly, each job with an empty run directory; the server is a real one, with
one job that holds all slots. Then that job is cancelled, and real jobs of no work run through the slots while the same
requests are repeated. Times are those of one client, one request after another; the processor time of the server does
not depend on what else the machine does.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import psutil
from log_pages import http_client
from many_jobs_rows import write_rows
from side_by_side import percentile_95, server

from rekindle_service.client import Client

_ROUTES = (
    "/api/v1/summary",
    "/api/v1/devices",
    "/api/v1/machine",
    "/metrics",
    "/api/v1/jobs",
    "/api/v1/jobs?limit=200",
    "/api/v1/jobs?state=queued",
    "/api/v1/jobs?state=running",
    "/api/v1/jobs?state=failed",
    "/api/v1/jobs?state=failed&owner=ann",
    "/api/v1/jobs?owner=zoe",
    "/api/v1/jobs?owner=nobody",
    "/api/v1/jobs?name=resnet-7",
    "/api/v1/jobs?name=none",
    "/api/v1/jobs?q=SNET-49",
    "/api/v1/jobs?q=none",
    "/api/v1/jobs?q=rare&state=succeeded",
    "/api/v1/jobs?cursor=20000",
    "/api/v1/jobs?state=succeeded&cursor=500",
    "/api/v1/jobs?experiment={experiment}",
    "/api/v1/jobs/{job}",
    "/api/v1/jobs/{job}/attempts",
    "/api/v1/jobs/{job}/events",
    "/api/v1/experiments",
    "/api/v1/queue",
    "/api/v1/queue?owner=ann&limit=200",
    "/api/v1/disk",
    "/api/v1/disk/jobs?limit=50",
    "/api/v1/overview",
    "/api/v1/audit",
    "/readyz",
)
_HOLD = """import os, time
while os.path.exists(__FOLDER__): time.sleep(0.5)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--finished", type=int, default=100_000)
    parser.add_argument("--requests", type=int, default=100, help="of each route")
    parser.add_argument("--idle", type=float, default=30, help="seconds that the idle server is watched")
    parser.add_argument("--running", type=float, default=60, help="seconds that the queue runs; 0: not at all")
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f} before, {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="many-") as directory:
        home, code = Path(directory) / "home", Path(directory) / "code"
        holder = make_home(home, code, options)
        began = time.monotonic()
        with server(home, existing=True) as client:
            print(f"started after {time.monotonic() - began:.1f} s", flush=True)
            measure(client, home, code, holder, options)


def make_home(home: Path, code: Path, options: argparse.Namespace) -> str:
    """Returns the id of the job that holds all slots."""
    code.mkdir()
    (code / "hold.py").write_text(_HOLD.replace("__FOLDER__", repr(str(code))))
    (code / "short.py").touch()
    with server(home) as client:
        holder = submit(client, code, "hold.py", ranks=2)
        while client.job(holder)["state"] != "running":
            time.sleep(0.1)
    began = time.monotonic()
    rows = write_rows(home, options.queued, options.finished)
    print(f"wrote {rows} rows in {time.monotonic() - began:.1f} s", flush=True)
    return holder


def submit(client: Client, code: Path, script: str, **body: object) -> str:
    return str(client.submit({"script": script, "code": {"path": str(code)}, "device": "cpu", **body})["id"])


def measure(client: Client, home: Path, code: Path, holder: str, options: argparse.Namespace) -> None:
    process = psutil.Process(json.loads((home / "server.json").read_text())["pid"])
    with http_client(home) as http:
        settle(process)
        cores = cores_of(process, lambda: time.sleep(options.idle))
        print(f"idle: {cores * 100:.1f} % of a core, RSS {process.memory_info().rss / 1e6:.0f} MB", flush=True)
        size = sum(path.stat().st_size for path in home.glob("rekindle.db*"))
        print(f"database {size / 1e6:.0f} MB", flush=True)
        print(f"first event of a stream: {first_event(http) * 1e3:.0f} ms", flush=True)
        routes = [known(http, route) for route in _ROUTES]
        table(http, process, routes, options.requests)
        print(f"RSS {process.memory_info().rss / 1e6:.0f} MB", flush=True)
        if options.running:
            run_queue(client, http, process, code, holder, routes, options)


def run_queue(
    client: Client,
    http: httpx2.Client,
    process: psutil.Process,
    code: Path,
    holder: str,
    routes: list[str],
    options: argparse.Namespace,
) -> None:
    """Short jobs, more than can end meanwhile, go through the slots in front of all others."""
    jobs = [submit(client, code, "short.py", ranks=1, priority=10) for _ in range(int(options.running * 2))]
    client.cancel(holder)
    while client.job(jobs[1])["state"] == "queued":
        time.sleep(0.1)
    cores = cores_of(process, lambda: time.sleep(options.running / 2))
    print(f"\nwhile the queue runs: {cores:.2f} cores without any client", flush=True)
    table(http, process, routes, max(10, options.requests // 10))
    states = [client.job(job)["state"] for job in jobs]
    print(f"{states.count('succeeded')} jobs have ended meanwhile, RSS {process.memory_info().rss / 1e6:.0f} MB")
    for job, state in zip(jobs, states, strict=True):
        if state != "succeeded":
            client.cancel(job)


def settle(process: psutil.Process) -> None:
    """Wait until what a server does after its start is done."""
    began = time.monotonic()
    while time.monotonic() - began < 300 and cores_of(process, lambda: time.sleep(5)) > 0.3:
        pass
    print(f"settled after {time.monotonic() - began:.0f} s", flush=True)


def cores_of(process: psutil.Process, action: Callable[[], None]) -> float:
    """Processor seconds of the server per second, while ``action`` runs."""
    before, began = sum(process.cpu_times()[:2]), time.monotonic()
    action()
    return float(sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began)


def known(http: httpx2.Client, route: str) -> str:
    """The route with the ids of a job and of an experiment in it."""
    job = http.get("/api/v1/jobs", params={"limit": 1, "state": "succeeded"}).json()["items"][0]["id"]
    experiments = http.get("/api/v1/experiments", params={"limit": 1}).json()["items"]
    return route.format(job=job, experiment=experiments[0]["id"] if experiments else "")


def table(http: httpx2.Client, process: psutil.Process, routes: list[str], requests: int) -> None:
    """The routes take turns, so that all of them see the same machine."""
    times: dict[str, list[float]] = {route: [] for route in routes}
    used, sizes = dict.fromkeys(routes, 0.0), dict.fromkeys(routes, 0)
    for route in list(times):
        if (status := http.get(route).status_code) >= 400:
            print(f"{route}: {status}, left out", flush=True)
            del times[route]
    for _ in range(10):
        for route, found in times.items():
            before = sum(process.cpu_times()[:2])
            for _ in range(max(1, requests // 10)):
                began = time.perf_counter()
                sizes[route] = len(http.get(route).content)
                found.append(time.perf_counter() - began)
            used[route] += sum(process.cpu_times()[:2]) - before
    print(f"load {os.getloadavg()[0]:.2f}")
    print("| route | p50, ms | p95, ms | server's CPU, ms | kB |")
    print("|---|---|---|---|---|")
    for route, found in times.items():
        p50, p95 = statistics.median(found), percentile_95(found)
        cpu, size = used[route] / len(found), sizes[route] / 1e3
        print(f"| `{route}` | {p50 * 1e3:.1f} | {p95 * 1e3:.1f} | {cpu * 1e3:.1f} | {size:.1f} |")
    sys.stdout.flush()


def first_event(http: httpx2.Client) -> float:
    """Seconds until a new client has received something."""
    began = time.perf_counter()
    with http.stream("GET", "/api/v1/events") as response:
        next(line for line in response.iter_lines() if line.startswith("data:"))
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
