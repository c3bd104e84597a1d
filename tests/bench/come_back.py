"""How many runs come back from kills: bare ``torchrun --max-restarts`` against rekindle, in turn, the same script.

    python tests/bench/come_back.py --runs 10 --kills 5

In every run rank 1 is killed with SIGKILL ``--kills`` times, each time after it has finished ten steps of its own. A
run came back when its last step is finished. Downtime is from a kill to the next finished step of rank 1.
"""

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rekindle_service.client import Client
from rekindle_service.settings import Settings

SCRIPT = Path(__file__).with_name("scripts") / "plain_ddp.py"
STEPS = 150
PATIENCE = 180.0  # seconds without a finished step after which a run counts as lost


@dataclass
class Result:
    came_back: bool
    kills: int = 0
    downtimes: list[float] = field(default_factory=list)


class Steps:
    """The step log of rank 1, read as it grows."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "steps-1.log"

    def all(self) -> list[tuple[int, int, float]]:
        if not self._path.exists():
            return []
        lines = self._path.read_text().splitlines(keepends=True)
        return [(int(s), int(p), float(t)) for s, p, t in (line.split() for line in lines if line.endswith("\n"))]

    def last(self) -> tuple[int, int, float]:
        return (self.all() or [(-1, 0, 0.0)])[-1]


class Run:
    """One run under test; ``alive`` is False once its launcher has given up or finished."""

    def __init__(self, folder: Path) -> None:
        self.steps = Steps(folder)

    def alive(self) -> bool:
        raise NotImplementedError


def kill_and_watch(run: Run, kills: int) -> Result:
    result = Result(came_back=False)
    seen = time.monotonic()
    before = -1
    killed_pid = 0
    while run.alive() and time.monotonic() - seen < PATIENCE:
        step, pid, at = run.steps.last()
        if step != before:
            before, seen = step, time.monotonic()
        own_steps = sum(1 for _, each, _ in run.steps.all() if each == pid)
        if result.kills < kills and pid != killed_pid and own_steps >= 10:
            killed_pid, killed_at = pid, time.time()
            os.kill(pid, signal.SIGKILL)
            result.kills += 1
            if (back := wait_for_return(run, pid)) is not None:
                result.downtimes.append(back - killed_at)
        time.sleep(0.02)
    result.came_back = run.steps.last()[0] == STEPS - 1 and result.kills == kills
    return result


def wait_for_return(run: Run, killed_pid: int) -> float | None:
    deadline = time.monotonic() + PATIENCE
    while run.alive() and time.monotonic() < deadline:
        _, pid, at = run.steps.last()
        if pid != killed_pid:
            return next(when for _, each, when in run.steps.all() if each == pid)
        time.sleep(0.01)
    return None


class BareRun(Run):
    def __init__(self, folder: Path, kills: int) -> None:
        super().__init__(folder)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        with (folder / "torchrun.log").open("wb") as log:
            self.process = subprocess.Popen(
                [*command, f"--max-restarts={kills}", str(SCRIPT), f"--steps={STEPS}"],
                env={**os.environ, "BENCH_DIR": str(folder), "OMP_NUM_THREADS": "1"},
                stdout=log,
                stderr=log,
            )

    def alive(self) -> bool:
        return self.process.poll() is None


class ServedRun(Run):
    def __init__(self, folder: Path, client: Client) -> None:
        super().__init__(folder)
        self.client = client
        body = {"script": SCRIPT.name, "code": {"path": str(SCRIPT.parent)}, "args": [f"--steps={STEPS}"], "ranks": 2}
        self.job = client.submit({**body, "device": "cpu", "env": {"BENCH_DIR": str(folder)}})["id"]
        self._ended = False

    def alive(self) -> bool:
        self._ended = self._ended or self.client.job(self.job)["state"] in ("succeeded", "failed", "cancelled")
        return not self._ended


@contextmanager
def server(home: Path) -> Iterator[Client]:
    env = {**os.environ, "REKINDLE_HOME": str(home), "REKINDLE_CPU_SLOTS": "2"}
    process = subprocess.Popen(
        [Path(sys.executable).with_name("rekindle"), "serve", "--port", "0"], env=env, stdout=subprocess.DEVNULL
    )
    try:
        while not (home / "server.json").exists():
            time.sleep(0.05)
        os.environ["REKINDLE_HOME"] = str(home)
        with Client.from_home(Settings()) as client:
            yield client
    finally:
        process.terminate()
        process.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--kills", type=int, default=5)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="come-back-"))
    results: dict[str, list[Result]] = {"torchrun": [], "rekindle": []}
    with server(folder / "home") as client:
        for number in range(options.runs):
            for name in results:
                place = folder / f"{name}-{number}"
                place.mkdir()
                run = BareRun(place, options.kills) if name == "torchrun" else ServedRun(place, client)
                result = kill_and_watch(run, options.kills)
                if isinstance(run, BareRun) and run.alive():
                    run.process.terminate()
                    run.process.wait(60)
                results[name].append(result)
                print(f"{name} run {number}: {'came back' if result.came_back else 'LOST'}", result.kills, flush=True)
    report(results)
    shutil.rmtree(folder)


def report(results: dict[str, list[Result]]) -> None:
    medians = {}
    for name, runs in results.items():
        downtimes = [each for result in runs for each in result.downtimes]
        medians[name] = statistics.median(downtimes)
        back = sum(result.came_back for result in runs)
        print(f"{name:9} came back in {back} of {len(runs)} runs; median downtime {medians[name]:.2f} s")
    print(f"downtime ratio torchrun / rekindle: {medians['torchrun'] / medians['rekindle']:.1f}")


if __name__ == "__main__":
    main()
