"""Plain torchrun, without any service: start a script on some ranks and wait for its end."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.environment import clean_environment

SCRIPTS = Path(__file__).parent / "e2e" / "scripts"
EXACT = str(SCRIPTS / "exact.py")
LONGEST = 120  # seconds


@dataclass(frozen=True)
class Ended:
    """How a launch of torchrun ended."""

    code: int
    output: str


def torchrun(ranks: int, target: list[str], folder: Path, **environment: str) -> Ended:
    """Run ``target`` (a script, or ``-m`` and a module, with its arguments) in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    own = {**clean_environment(os.environ), "OMP_NUM_THREADS": "1", "OUT": str(folder), **environment}
    argv = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", *target]
    ended = subprocess.run(
        argv,
        cwd=folder,
        env=own,
        timeout=LONGEST,
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return Ended(ended.returncode, ended.stdout)


def lines(path: Path) -> list[list]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def history(folder: Path, ranks: int) -> dict[int, tuple[int, list[int]]]:
    """Epoch and sample ids of each step, all ranks together; a step that was trained again counts as it was last."""
    steps: dict[int, dict[int, tuple[int, list[int]]]] = {}
    for rank in range(ranks):
        for step, epoch, ids in lines(folder / f"samples-{rank}.jsonl"):
            steps.setdefault(step, {})[rank] = (epoch, ids)
    return {
        step: (own[0][0], [each for rank in sorted(own) for each in own[rank][1]])
        for step, own in sorted(steps.items())
    }


def snapshot_steps(folder: Path) -> list[int]:
    return sorted(int(entry.name) for entry in (folder / "snapshots").iterdir() if entry.name.isdecimal())
