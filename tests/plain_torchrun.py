"""Plain torchrun, without any service: start a script on some ranks and wait for its end."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from rekindle.contract.environment import clean_environment
from script_process import ScriptProcess

SCRIPTS = Path(__file__).parent / "e2e" / "scripts"
EXACT = str(SCRIPTS / "exact.py")
LONGEST = 120  # seconds


@dataclass(frozen=True)
class Ended:
    """How a launch of torchrun ended."""

    code: int
    output: str


def torchrun(ranks: int, target: list[str], directory: Path, **environment: str) -> Ended:
    """Run ``target`` (a script with its arguments) in ``directory``, by a process that has imported torch already."""
    return _preloaded().run(ranks, target, directory, environment)


def cold_torchrun(ranks: int, target: list[str], directory: Path, **environment: str) -> Ended:
    """Run ``target`` (a script, or ``-m`` and a module, with its arguments) in ``directory``, as a user does."""
    directory.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *target]
    ended = subprocess.run(
        argv,
        cwd=directory,
        env=_environment(directory, environment),
        timeout=LONGEST,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Ended(ended.returncode, ended.stdout)


def _environment(directory: Path, own: dict[str, str]) -> dict[str, str]:
    return {**clean_environment(os.environ), "OMP_NUM_THREADS": "1", "OUT": str(directory), **own}


class _PreloadedTorchrun(ScriptProcess):
    def run(self, ranks: int, target: list[str], directory: Path, environment: dict[str, str]) -> Ended:
        directory.mkdir(parents=True, exist_ok=True)
        log = directory / "torchrun.log"
        options = ["--standalone", "--local-addr=127.0.0.1", f"--nproc-per-node={ranks}", "--start-method=fork"]
        argv = [*options, "--run-path", *target]
        own = _environment(directory, environment)
        request = {"argv": argv, "directory": str(directory), "environment": own, "log": str(log)}
        session = int(self.ask(json.dumps(request)))
        late = threading.Timer(LONGEST, _end_with_stacks, (session,))
        late.start()
        try:
            code = int(self.line())
        finally:
            late.cancel()
        assert code != -signal.SIGKILL, f"torchrun did not end within {LONGEST} s: {log.read_text()}"
        return Ended(code, log.read_text())


def _end_with_stacks(session: int) -> None:
    """Every process of it writes its stacks (``preloaded_torchrun``), and is killed."""
    os.killpg(session, signal.SIGRTMIN)
    time.sleep(2)  # nothing reports that all have written them
    os.killpg(session, signal.SIGKILL)


@cache
def _preloaded() -> _PreloadedTorchrun:
    return _PreloadedTorchrun(SCRIPTS / "preloaded_torchrun.py")


def lines(path: Path) -> list[list]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def history(directory: Path, ranks: int) -> dict[int, tuple[int, list[int]]]:
    """Epoch and sample ids of each step, all ranks together; a step that was trained again counts as it was last."""
    steps: dict[int, dict[int, tuple[int, list[int]]]] = {}
    for rank in range(ranks):
        for step, epoch, ids in lines(directory / f"samples-{rank}.jsonl"):
            steps.setdefault(step, {})[rank] = (epoch, ids)
    return {
        step: (own[0][0], [each for rank in sorted(own) for each in own[rank][1]])
        for step, own in sorted(steps.items())
    }


def digests(directory: Path) -> list[dict]:
    """What each of two ranks of ``exact.py`` has ended with."""
    return [json.loads((directory / f"digest-{rank}.json").read_text()) for rank in range(2)]


def assert_same_result(directory: Path, expected: Path) -> None:
    """Weights, random numbers, last step and samples of a training on two ranks are those of another one."""
    for found, wanted in zip(digests(directory), digests(expected), strict=True):
        assert (found["weights"], found["rng"], found["step"]) == (wanted["weights"], wanted["rng"], wanted["step"])
    assert history(directory, 2) == history(expected, 2)


def snapshot_steps(directory: Path) -> list[int]:
    return sorted(int(entry.name) for entry in (directory / "snapshots").iterdir() if entry.name.isdecimal())
