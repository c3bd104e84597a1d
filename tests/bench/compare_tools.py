"""rekindle compared with torchrun, Ray Train, torchft, Slurm and task-spooler, on the same script and machine.

    make bench                                             everything; about an hour
    python tests/bench/compare_tools.py recovery start     some sections
    python tests/bench/compare_tools.py --report           only the table and picture of what was measured

Each section replaces its part of ``docs/bench.json``, with date, machine and load; from that file come the table of
``docs/evidence.md`` and ``docs/bench.svg``. What cannot be installed is named there and skipped. Times need a machine
that does nothing else.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import log_pages
import many_jobs
import many_ranks
import peers
import planted_faults
import psutil
import short_jobs
import snapshot_stall
import torch
from bench_report import RESULTS, write_report
from peers import BARE, TOOLS, starts
from side_by_side import Steps, kill_and_watch, percentile_95, server

KILLS, OWN_STEPS = 5, 12
_ROUNDS = 2
_TRAINING = ["--model=resnet18", "--every=10", "--pause=0", "--steps=1000000"]
_MIB = 1 << 20
_PATIENCE = 60.0  # seconds to the first step


def faults(directory: Path, options: Namespace) -> dict[str, Any]:
    """Forty planted faults and four healthy delays."""
    rows = {}
    with starts(directory, options.tools) as (tools, skipped):
        for name, start in tools.items():
            try:
                rows[name] = planted_faults.summary(planted_faults.plant(start, directory / name.replace(" ", "-")))
            except RuntimeError as error:
                skipped[name] = str(error)
    settings = {
        "script": "plain_ddp.py: two ranks, a small model, saved every 4 steps; a fault after 6 steps of the process",
        "a hang is found after, s": planted_faults.HANG,
        "how": "timeout of collectives; rekindle: hang_timeout, collectives with torch's default",
    }
    return {"rows": rows, "skipped": skipped, "settings": settings}


def recovery(directory: Path, options: Namespace) -> dict[str, Any]:
    """Kill to next step of any rank, and to the killed rank's own."""
    pauses: dict[str, list[float]] = {}
    returns: dict[str, list[float]] = {}
    with starts(directory, tuple(name for name in options.tools if name != BARE)) as (tools, skipped):
        for number in range(_ROUNDS):
            for name, start in tools.items():
                if name in pauses and not pauses[name]:
                    continue  # it did not come back
                (place := directory / f"{name}-{number}").mkdir()
                run = start(place, _TRAINING, None)
                try:
                    result = kill_and_watch(run, KILLS, None, OWN_STEPS)
                finally:
                    run.close()
                print(name, [round(each, 2) for each in result.pauses], flush=True)
                pauses.setdefault(name, []).extend(result.pauses)
                returns.setdefault(name, []).extend(result.downtimes)
    rows = {name: {"next step": _times(pauses[name]), "all ranks": _times(returns[name])} for name in pauses}
    settings = {"script": "plain_ddp.py: two ranks, ResNet-18, saved every 10 steps", "rounds in turn": _ROUNDS}
    return {"rows": rows, "skipped": skipped, "settings": {**settings, "kills per round": KILLS}}


def start(directory: Path, options: Namespace) -> dict[str, Any]:
    """Submit to the end of the first step."""
    seconds: dict[str, list[float]] = {}
    settings = {"script": "plain_ddp.py: two ranks, a small model", "rounds in turn": options.rounds}
    with starts(directory, tuple(name for name in options.tools if name != BARE)) as (tools, skipped):
        for number in range(options.rounds):
            for name, begin in tools.items():
                if name in skipped:
                    continue
                (place := directory / f"{name}-{number}").mkdir()
                began = time.time()
                run = begin(place, ["--steps=1000000"], None)
                try:
                    seconds.setdefault(name, []).append(_first_step(place) - began)
                    print(name, round(seconds[name][-1], 2), flush=True)
                except RuntimeError as error:
                    skipped[name] = str(error)
                finally:
                    run.close()
    rows = {name: {"first step": _times(found)} for name, found in seconds.items()}
    return {"rows": rows, "skipped": skipped, "settings": settings}


def _first_step(place: Path) -> float:
    deadline = time.monotonic() + _PATIENCE
    while not (found := Steps(place, rank=0).all()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"no step within {_PATIENCE:.0f} s: {place}")
        time.sleep(0.02)
    return found[0][2]


def snapshots(directory: Path, _options: Namespace) -> dict[str, Any]:
    """How long a snapshot keeps the training waiting and when it is durable, for models of several sizes."""
    rows: dict[str, dict[str, Any]] = {}
    for layers in (2, 8, 32, 64):  # of 4 MiB, and as much momentum
        torch.manual_seed(0)
        linear = [torch.nn.Linear(1024, 1024) for _ in range(layers)]
        model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.AdaptiveAvgPool1d(1024), *linear)
        figures, _ = snapshot_stall.compared(model, 5, str(directory))
        for method, each in figures.items():
            row = {"blocked": _times(each.blocked), "durable": _times(each.durable)}
            rows.setdefault(method, {})[str(8 * layers)] = row
            print(method, 8 * layers, row, flush=True)
    return {"rows": rows, "settings": {"unit of sizes": "MiB", "snapshots of each size": 5, "ranks": 1}}


def queue(directory: Path, _options: Namespace) -> dict[str, Any]:
    """Short jobs a second."""
    rows, skipped = {}, {"pueue": "neither Debian 12 nor PyPI has it"}
    for name, run in short_jobs.QUEUES.items():
        try:
            rows[name] = {"jobs a second": round(run(short_jobs.Jobs(directory / name, 100)), 2)}
            print(name, rows[name], flush=True)
        except RuntimeError as error:
            skipped[name] = str(error)
    slurm = "a controller and one node on this machine, select/cons_tres, sched_interval=2, bf_interval=2"
    return {"rows": rows, "skipped": skipped, "settings": {"jobs": "100 of 0.1 s", "slots": 2, "Slurm": slurm}}


def growth(directory: Path, _options: Namespace) -> dict[str, Any]:
    """What ranks, jobs and lines of a log cost the server."""
    rows = {**_by_ranks(), **_by_jobs(directory), **_by_lines(directory)}
    return {
        "rows": rows,
        "settings": {"ranks": "played, with 10 listeners", "jobs": "finished, a tenth as many queued"},
    }


def _by_ranks() -> dict[str, dict[str, float]]:
    cores, answers = {}, {}
    for ranks in (2, 8, 32, 64):
        used, times = many_ranks.measured(Namespace(ranks=ranks, clients=10, seconds=8.0))
        cores[str(ranks)], answers[str(ranks)] = round(used[0], 4), round(statistics.median(times), 2)
    return {"ranks: cores of the server": cores, "ranks: all of them by HTTP, ms": answers}


def _by_jobs(directory: Path) -> dict[str, dict[str, float]]:
    routes = {"jobs: first page of the list, ms": "/api/v1/jobs", "jobs: search in vain, ms": "/api/v1/jobs?q=none"}
    found: dict[str, dict[str, float]] = {name: {} for name in (*routes, "jobs: memory of the server, MB")}
    for count in (10, 1000, 10_000, 100_000):
        place = directory / f"jobs-{count}"
        place.mkdir()
        holder = many_jobs.make_home(place / "home", place / "code", Namespace(queued=count // 10, finished=count))
        with server(place / "home", existing=True) as client, log_pages.http_client(place / "home") as http:
            process = psutil.Process(json.loads((place / "home" / "server.json").read_text())["pid"])
            many_jobs.settle(process)
            for name, route in routes.items():
                times = [log_pages.milliseconds(http, route, {}) for _ in range(30)]
                found[name][str(count)] = round(statistics.median(times), 2)
            found["jobs: memory of the server, MB"][str(count)] = round(process.memory_info().rss / 1e6)
            client.cancel(holder)
    return found


def _by_lines(directory: Path) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {"log lines: the last 1,000, ms": {}, "log lines: 64 KiB anywhere, ms": {}}
    (place := directory / "log").mkdir()
    with server(place / "home") as client, log_pages.http_client(place / "home") as http:
        job, log = log_pages.job_with_log(client, place / "home", place)
        for lines in (10_000, 100_000, 1_000_000, 10_000_000):
            log_pages.fill(log, lines * log_pages.LINE_BYTES)
            middle = {"offset": log.stat().st_size // 2}
            for name, asked in zip(found, ({"tail": 1000, "limit": _MIB}, middle), strict=True):
                url = f"/api/v1/jobs/{job}/ranks/0/log"
                times = [log_pages.milliseconds(http, url, asked) for _ in range(30)]
                found[name][str(lines)] = round(statistics.median(times), 2)
    return found


def _times(seconds: list[float]) -> dict[str, Any]:
    if not seconds:
        return {"count": 0}
    middle, late = statistics.median(seconds), percentile_95(seconds)
    return {"count": len(seconds), "median": round(middle, 4), "p95": round(late, 4)}


def machine() -> dict[str, Any]:
    processor = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    return {
        "cores": os.cpu_count(),
        "processor": processor.partition(": ")[2],
        "memory, GiB": round(psutil.virtual_memory().total / (1 << 30)),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


SECTIONS: dict[str, Callable[[Path, Namespace], dict[str, Any]]] = {
    each.__name__: each for each in (faults, recovery, start, snapshots, queue, growth)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=", ".join(SECTIONS))
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=TOOLS, help="of faults, recovery and start")
    parser.add_argument("--rounds", type=int, default=4, help="of the section start")
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    if unknown := {*options.sections} - {*SECTIONS}:
        parser.error(f"no section: {', '.join(unknown)}")
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    for name in [] if options.report else options.sections or SECTIONS:
        measure(name, options)
    write_report(json.loads(RESULTS.read_text()))


def measure(name: str, options: Namespace) -> None:
    """Replace a section in the file of the results; of a section of tools only the rows that were measured."""
    about = {"date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC", "load at start": round(os.getloadavg()[0], 2)}
    about |= {"machine": machine(), "versions": peers.versions()}
    print(f"--- {name}: {about}", flush=True)
    with tempfile.TemporaryDirectory(prefix="bench-") as directory:
        found = SECTIONS[name](Path(directory), options)
    found["settings"]["tools"] = {row: peers.SETTINGS[row] for row in found["rows"] if row in peers.SETTINGS}
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    about["command"] = f"python tests/bench/compare_tools.py {name}"
    before = results.get(name, {})
    dates = {**before.get("dates", {}), **dict.fromkeys(found["rows"], about["date"])}
    skipped = {**before.get("skipped", {}), **found.get("skipped", {})}
    results[name] = {**about, **found, "rows": {**before.get("rows", {}), **found["rows"]}}
    results[name] |= {"dates": dates, "skipped": {row: why for row, why in skipped.items() if row not in dates}}
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
