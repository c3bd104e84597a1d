"""The same script under bare torchrun and under rekindle, killed again and again."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rekindle_service.client import Client
from rekindle_service.config.settings import Settings

SCRIPT = Path(__file__).with_name("scripts") / "plain_ddp.py"
PATIENCE = 180.0  # seconds without a finished step after which a run counts as lost


@dataclass
class Result:
    came_back: bool
    kills: int = 0
    downtimes: list[float] = field(default_factory=list)  # seconds from a kill to the next finished step


class Steps:
    """The step log of a rank, read as it grows: (step, pid, seconds since the epoch)."""

    def __init__(self, directory: Path, rank: int = 1) -> None:
        self._path = directory / f"steps-{rank}.log"

    def all(self) -> list[tuple[int, int, float]]:
        if not self._path.exists():
            return []
        lines = [line.split() for line in self._path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        return [(int(step), int(pid), float(at)) for step, pid, at in lines]

    def last(self) -> tuple[int, int, float]:
        return (self.all() or [(-1, 0, 0.0)])[-1]


class Launched(Protocol):
    """One run under test."""

    steps: Steps

    def alive(self) -> bool:
        """False once its launcher has finished or given up."""

    def close(self) -> None: ...


class BareRun:
    """torchrun with restarts of its own; ``env`` can work around its store."""

    def __init__(self, directory: Path, args: list[str], restarts: int, env: dict[str, str]) -> None:
        self.steps = Steps(directory)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        with (directory / "torchrun.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*command, f"--max-restarts={restarts}", str(SCRIPT), *args],
                env={**os.environ, "BENCH_DIR": str(directory), "OMP_NUM_THREADS": "1", **env},
                stdout=log,
                stderr=log,
            )

    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        if self.alive():
            self._process.terminate()
            self._process.wait(90)


class ServedRun:
    """A job of a running server."""

    def __init__(self, directory: Path, args: list[str], client: Client, *, standby: bool = False) -> None:
        self.steps, self._client = Steps(directory), client
        body = {"script": SCRIPT.name, "code": {"path": str(SCRIPT.parent)}, "args": args, "ranks": 2, "device": "cpu"}
        self._job = client.submit({**body, "standby": standby, "env": {"BENCH_DIR": str(directory)}})["id"]

    def alive(self) -> bool:
        return self._client.job(self._job)["state"] not in ("succeeded", "failed", "cancelled")

    def close(self) -> None:
        if self.alive():
            self._client.cancel(self._job)


@contextmanager
def server(home: Path, slots: int = 2, *, existing: bool = False, **settings: str) -> Iterator[Client]:
    """``rekindle serve`` with CPU slots and variables, for as long as the context lasts.

    ``existing``: the home is there.
    """
    home.mkdir(exist_ok=existing)
    command = [Path(sys.executable).with_name("rekindle"), "serve", "--port", "0"]
    env = {**os.environ, "REKINDLE_HOME": str(home), "REKINDLE_CPU_SLOTS": str(slots), **settings}
    with (home / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    try:
        while not (home / "server.json").exists():
            time.sleep(0.05)
        with Client.from_home(Settings(home=home)) as client:
            yield client
    finally:
        process.terminate()
        process.wait(30)


Starts = dict[str, Callable[[Path], Launched]]
"""How each begins a run in a directory, by name."""


def alternate(
    starts: Starts, directory: Path, rounds: int, *, kills: int, own_steps: int, last: int
) -> dict[str, list[Result]]:
    """Rounds of ``kills`` kills, of each in turn, so that all see the same machine; each is printed as it ends.

    Rank 1 is killed whenever it has finished ``own_steps`` steps; a run came back if it has finished step ``last``.
    """
    results: dict[str, list[Result]] = {name: [] for name in starts}
    for number in range(rounds):
        for name, start in starts.items():
            place = directory / f"{name}-{number}"
            place.mkdir()
            run = start(place)
            result = _kill_and_watch(run, kills, last, own_steps)
            with suppress(subprocess.TimeoutExpired):
                run.close()
            results[name].append(result)
            downtimes = [round(each, 2) for each in result.downtimes]
            print(name, "came back" if result.came_back else "LOST", downtimes, flush=True)
    return results


def await_end(client: Client, job: str) -> None:
    while (state := client.job(job)["state"]) not in ("succeeded", "failed", "cancelled"):
        time.sleep(0.05)
    assert state == "succeeded", state


def percentile_95(values: Iterable[float]) -> float:
    ascending = sorted(values)
    return ascending[int(0.95 * (len(ascending) - 1))]


def _kill_and_watch(run: Launched, kills: int, last_step: int, own_steps: int) -> Result:
    """Kill rank 1 ``kills`` times, each time after it has finished ``own_steps`` steps, and see it to its end."""
    result = Result(came_back=False)
    seen, before, killed_pid = time.monotonic(), -1, 0
    while run.alive() and time.monotonic() - seen < PATIENCE:
        step, pid, _ = run.steps.last()
        if step != before:
            before, seen = step, time.monotonic()
        done = sum(1 for _, each, _ in run.steps.all() if each == pid)
        if result.kills < kills and pid != killed_pid and done >= own_steps:
            killed_pid, killed_at = pid, time.time()
            os.kill(pid, signal.SIGKILL)
            result.kills += 1
            if (back := _wait_for_return(run, pid)) is not None:
                result.downtimes.append(back - killed_at)
        time.sleep(0.02)
    result.came_back = run.steps.last()[0] == last_step and result.kills == kills
    return result


def _wait_for_return(run: Launched, killed_pid: int) -> float | None:
    """When another process finished its first step, in seconds since the epoch."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        _, pid, _ = run.steps.last()
        if pid != killed_pid:
            return next(at for _, each, at in run.steps.all() if each == pid)
        if not run.alive():
            return None
        time.sleep(0.02)
    return None
