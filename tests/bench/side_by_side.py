"""The same script under bare torchrun and under rekindle, killed again and again."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil

from rekindle_service.client import Client
from rekindle_service.config.settings import Settings

SCRIPT = Path(__file__).with_name("scripts") / "plain_ddp.py"
PATIENCE = 90.0  # seconds without a finished step after which a run counts as lost


@dataclass
class Result:
    came_back: bool
    kills: int = 0
    downtimes: list[float] = field(default_factory=list)  # seconds from a kill to the next step of that rank
    pauses: list[float] = field(default_factory=list)  # the same of any rank


class Steps:
    """The step log of a rank, read as it grows: (step, pid, seconds since the epoch)."""

    def __init__(self, directory: Path, rank: int = 1) -> None:
        self.directory = directory
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


class CommandRun:
    """Commands that train together, each with its output in a log; ``services`` serve them and never end."""

    def __init__(
        self, directory: Path, commands: Sequence[list[str]], env: dict[str, str], services: Sequence[list[str]] = ()
    ) -> None:
        self.steps, self._directory = Steps(directory), directory
        own = {**os.environ, "BENCH_DIR": str(directory), "OMP_NUM_THREADS": "1", **env}
        started = []
        for number, command in enumerate([*commands, *services]):
            with (directory / f"output-{number}.log").open("wb") as log:
                more = {"REPLICA_GROUP_ID": str(number)}  # torchft's
                started.append(subprocess.Popen(command, env={**own, **more}, stdout=log, stderr=log))
        self._training, self._services = started[: len(commands)], started[len(commands) :]

    def alive(self) -> bool:
        return any(each.poll() is None for each in self._training)

    def output(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self._directory.glob("output-*.log")))

    def close(self) -> None:
        """End what runs, also what left the process group; all of it has the directory in its environment."""
        for each in self._training:
            each.terminate()
        with suppress(subprocess.TimeoutExpired):
            for each in self._training:
                each.wait(10)
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("BENCH_DIR") == str(self._directory):
                    process.kill()
        for each in (*self._training, *self._services):
            each.wait()


def torchrun(
    *target: str, restarts: int, ranks: int = 2, python: str | Path = sys.executable, script: Path = SCRIPT
) -> list[str]:
    command = [str(python), "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return [*command, f"--max-restarts={restarts}", str(script), *target]


class BareRun(CommandRun):
    """torchrun with restarts of its own; ``env`` can work around its store."""

    def __init__(self, directory: Path, args: list[str], restarts: int, env: dict[str, str]) -> None:
        super().__init__(directory, [torchrun(*args, restarts=restarts)], env)


class ServedRun:
    """A job of a running server."""

    def __init__(
        self, directory: Path, args: list[str], client: Client, code: Path = SCRIPT.parent, **options: Any
    ) -> None:
        self.steps, self._client = Steps(directory), client
        body = {"script": SCRIPT.name, "code": {"path": str(code)}, "args": args, "ranks": 2, "device": "cpu"}
        self._job = client.submit({**body, **options, "env": {"BENCH_DIR": str(directory)}})["id"]

    def alive(self) -> bool:
        return self._client.job(self._job)["state"] not in ("succeeded", "failed", "cancelled")

    def output(self) -> str:
        """The faults that were planted, each followed by the outcome of its attempt."""
        found = []
        for attempt in self._client.attempts(self._job):
            log = self._client.log(self._job, 1, "stderr", attempt["number"], offset=0).data.decode()
            found += re.findall(r"(?m)^planted: .*$", log)
            if outcome := attempt["outcome"]:
                said = " ".join(f"{key} {outcome[key]}" for key in ("rank", "exit_code", "signal", "exception"))
                found.append(f"{said} {outcome['file']}:{outcome['line']} {outcome['message']}")
        return "\n".join(found)

    def close(self) -> None:
        if self.alive():
            self._client.cancel(self._job)
        while self.alive():
            time.sleep(0.05)


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
            result = kill_and_watch(run, kills, last, own_steps)
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


def await_spare() -> None:
    """Until a spare keeper of a server that this process has started waits for requests."""
    while not any(map(_is_spare, psutil.Process().children(recursive=True))):
        time.sleep(0.2)


def _is_spare(process: psutil.Process) -> bool:
    try:
        return process.name() == "rekindle-spare"  # once it is ready
    except psutil.NoSuchProcess:
        return False


def percentile_95(values: Iterable[float]) -> float:
    ascending = sorted(values)
    return ascending[int(0.95 * (len(ascending) - 1))]


def kill_and_watch(run: Launched, kills: int, last_step: int | None, own_steps: int) -> Result:
    """Kill rank 1 ``kills`` times, each time after ``own_steps`` steps of its process, and see the run to its end.

    Without a ``last_step`` only until rank 1 is back from the last kill.
    """
    result = Result(came_back=False)
    seen, before, killed_pid = time.monotonic(), -1, 0
    while run.alive() and time.monotonic() - seen < PATIENCE and (last_step is not None or result.kills < kills):
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
                result.pauses.append(_next_step(run.steps.directory, killed_at, pid) - killed_at)
        time.sleep(0.02)
    reached = len(result.downtimes) == kills if last_step is None else run.steps.last()[0] == last_step
    result.came_back = reached and result.kills == kills
    return result


def _next_step(directory: Path, killed_at: float, killed_pid: int) -> float:
    """When the first step was finished that had not begun before the kill."""
    entries = [each for rank in (0, 1) for each in Steps(directory, rank).all()]
    old = {pid for _, pid, at in entries if at <= killed_at}
    last = max(step for step, pid, _ in entries if pid == killed_pid)
    return min(at for step, pid, at in entries if at > killed_at and (pid not in old or step >= last + 2))


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
