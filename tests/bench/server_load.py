"""What the server costs while many people watch: its processor time and memory, and the speed of what it watches.

    python tests/bench/server_load.py --clients 50 --ranks 8 --lines 1000

One job; its ranks agree on every step and print lines. Windows with and without listeners alternate, so both see the
same machine. The listeners run on this machine too: their own processor time is printed as well as the server's.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from side_by_side import Steps, server

from rekindle_service.client import Client

SCRIPTS = Path(__file__).with_name("scripts")


@dataclass
class Window:
    """Cores are processor seconds per second."""

    steps_per_second: float
    server_cores: float
    listener_cores: float
    machine_cores: float
    server_rss: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--lines", type=int, default=1000, help="a second and rank")
    parser.add_argument("--period", type=float, default=0.1, help="seconds of a step")
    parser.add_argument("--busy", type=float, default=0.005, help="seconds of processor time of a rank in a step")
    parser.add_argument("--seconds", type=float, default=10, help="of a window")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.2f} before, {os.cpu_count()} cores", flush=True)
    with tempfile.TemporaryDirectory(prefix="load-") as directory:
        home = Path(directory) / "home"
        with server(home, slots=options.ranks) as client:
            measure(options, client, home, Path(directory))


def measure(options: argparse.Namespace, client: Client, home: Path, directory: Path) -> None:
    announced = json.loads((home / "server.json").read_text())
    process, steps = psutil.Process(announced["pid"]), Steps(directory, rank=0)
    job = start_job(options, client, directory)
    while steps.last()[0] < 30:
        time.sleep(0.5)
    windows: dict[str, list[Window]] = {"without": [], "with": []}
    for _ in range(options.rounds):
        windows["without"].append(look(options.seconds, process, steps, None))
        with listeners(announced["url"], (home / "token").read_text().strip(), job, options) as crowd:
            time.sleep(2)
            windows["with"].append(look(options.seconds, process, steps, crowd))
        print({name: round(found[-1].steps_per_second, 2) for name, found in windows.items()}, flush=True)
    client.cancel(job)
    report(options, windows)


def start_job(options: argparse.Namespace, client: Client, directory: Path) -> str:
    args = [f"--lines={options.lines}", f"--period={options.period}", f"--busy={options.busy}"]
    body = {"script": "chatty_ranks.py", "code": {"path": str(SCRIPTS)}, "args": args, "device": "cpu"}
    return str(client.submit({**body, "ranks": options.ranks, "env": {"BENCH_DIR": str(directory)}})["id"])


@contextmanager
def listeners(url: str, token: str, job: str, options: argparse.Namespace) -> Iterator[psutil.Process]:
    place = urlsplit(url)
    what = [str(place.hostname), str(place.port), job, str(options.ranks), str(options.clients)]
    process = subprocess.Popen(
        [sys.executable, str(SCRIPTS / "listeners.py"), *what],
        env={**os.environ, "REKINDLE_TOKEN": token},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    if process.stdout.readline() != b"connected\n":
        raise RuntimeError("the listeners could not connect")
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        received = json.loads(process.stdout.read())
        process.wait()
    print(f"each listener received {min(received) / 1e3:.0f} to {max(received) / 1e3:.0f} kB", flush=True)


def cores_used(process: psutil.Process, crowd: psutil.Process | None) -> tuple[float, float, float]:
    """Processor seconds so far: of the server, of its listeners, of the whole machine."""
    machine = psutil.cpu_times()
    busy = sum(machine) - machine.idle - machine.iowait - machine.guest - machine.guest_nice
    return sum(process.cpu_times()[:2]), 0.0 if crowd is None else sum(crowd.cpu_times()[:2]), busy


def look(seconds: float, process: psutil.Process, steps: Steps, crowd: psutil.Process | None) -> Window:
    before, began = cores_used(process, crowd), time.time()
    time.sleep(seconds)
    after = cores_used(process, crowd)
    cores = [(late - early) / seconds for late, early in zip(after, before, strict=True)]
    done = [at for _, _, at in steps.all() if began <= at < began + seconds]
    speed = (len(done) - 1) / (done[-1] - done[0]) if len(done) > 1 else 0.0
    return Window(speed, *cores, process.memory_info().rss)


def report(options: argparse.Namespace, windows: dict[str, list[Window]]) -> None:
    lines = options.lines * options.ranks
    print(f"{options.ranks} ranks, {lines} lines/s in all, {options.clients} clients, {options.rounds} windows each")
    print("| clients | steps/s | server, cores | listeners, cores | machine, cores | server RSS, MB |")
    print("|---|---|---|---|---|---|")
    for name, found in windows.items():
        middle = [statistics.median(getattr(window, field) for window in found) for field in Window.__annotations__]
        speed, of_server, of_listeners, machine, rss = middle
        print(f"| {name} | {speed:.2f} | {of_server:.2f} | {of_listeners:.2f} | {machine:.2f} | {rss / 1e6:.0f} |")
    ratios = [
        watched.steps_per_second / alone.steps_per_second
        for watched, alone in zip(windows["with"], windows["without"], strict=True)
    ]
    print(
        f"speed with over without, pairs: {[round(each, 3) for each in ratios]}; median {statistics.median(ratios):.3f}"
    )


if __name__ == "__main__":
    main()
