"""How long a page of a huge log takes: its end, its beginning, and pages all over it, over HTTP.

python tests/bench/log_pages.py --megabytes 1024 --pages 200
"""

import argparse
import json
import os
import random
import statistics
import tempfile
import time
from pathlib import Path

import httpx2
from side_by_side import server

from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.client import Client

_LINE = b"step %012d: loss 0.1234567 accuracy 0.9876543 \xc3\xa4 \x1b[32mok\x1b[0m grad_norm 1.2345678 lr 1.0e-03\n"
_MOST = 1 << 20
LINE_BYTES = len(_LINE % 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1024)
    parser.add_argument("--pages", type=int, default=200)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f} before, {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="log-") as directory:
        home = Path(directory) / "home"
        with server(home) as client:
            job, log = job_with_log(client, home, Path(directory))
            fill(log, options.megabytes << 20)
            size = log.stat().st_size
            with http_client(home) as http:
                measure(http, f"/api/v1/jobs/{job}/ranks/0/log", size, options.pages)


def http_client(home: Path) -> httpx2.Client:
    """For requests to the server of a home."""
    bearer = {"Authorization": f"Bearer {(home / 'token').read_text().strip()}"}
    return httpx2.Client(base_url=json.loads((home / "server.json").read_text())["url"], headers=bearer, timeout=60)


def job_with_log(client: Client, home: Path, directory: Path) -> tuple[str, Path]:
    """A job that is over, with one attempt: nothing else runs during the measurement."""
    code = directory / "code"
    code.mkdir()
    (code / "train.py").touch()
    first = client.submit({"script": "train.py", "code": {"path": str(code)}, "ranks": 2, "device": "cpu"})
    job = client.submit({"script": "train.py", "code": {"path": str(code)}, "ranks": 2, "after": [first["id"]]})["id"]
    client.cancel(job)
    run_dir = RunDir(home / "runs" / job)
    Journal(run_dir.journal).write(RecordType.ATTEMPT_STARTED, attempt=1, run=1, world_size=1, devices=["cpu:0"])
    rank = run_dir.attempt(1).rank(0)
    rank.root.mkdir(parents=True)
    return job, rank.log("stdout")


def fill(log: Path, size: int) -> None:
    with log.open("wb") as file:
        number = 0
        while file.tell() < size:
            file.write(b"".join(_LINE % each for each in range(number, number + 10_000)))
            number += 10_000


def measure(http: httpx2.Client, url: str, size: int, pages: int) -> None:
    kinds = {
        "the last 1,000 lines": lambda: {"tail": 1000, "limit": _MOST},
        "the last 1 MiB by lines": lambda: {"tail": 1_000_000, "limit": _MOST},
        "64 KiB anywhere": lambda: {"offset": random.randrange(size)},
        "1 MiB anywhere": lambda: {"offset": random.randrange(size - _MOST), "limit": _MOST},
    }
    print(f"| page of a log of {size / 1e9:.2f} GB | median, ms | p95, ms | slowest, ms |")
    print("|---|---|---|---|")
    for name, ask in kinds.items():
        times = sorted(milliseconds(http, url, ask()) for _ in range(pages))
        print(f"| {name} | {statistics.median(times):.1f} | {times[int(0.95 * len(times))]:.1f} | {times[-1]:.1f} |")


def milliseconds(http: httpx2.Client, url: str, asked: dict[str, int]) -> float:
    began = time.perf_counter()
    http.get(url, params=asked).raise_for_status()
    return 1000 * (time.perf_counter() - began)


if __name__ == "__main__":
    main()
