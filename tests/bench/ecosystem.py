"""What Lightning, Trainer, Accelerate and plain scripts do again after kills, each served as an unchanged job.

    python tests/bench/ecosystem.py --kills 5

Needs the extra ``ecosystem``. Each script of docs/examples is run once in peace and once with a random rank killed by
SIGKILL every 15 to 60 steps, on two ranks; then their traces are compared. Prints a table.
"""

import argparse
import json
import os
import random
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from side_by_side import server

from rekindle_service.client import Client

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SCRIPTS = ("with_torchrun", "with_lightning", "with_trainer", "with_accelerate", "with_rekindle")
EPOCH = 25  # steps
PATIENCE = 600.0  # seconds for a job
OVER = ("succeeded", "failed", "cancelled")

Samples = tuple[int, ...]  # of all ranks together, ascending


@dataclass(frozen=True)
class Trained:
    """One training, read from its trace."""

    state: str
    attempts: int
    kills: int
    done: int  # steps, those done again among them
    steps: dict[int, Samples] = field(repr=False)  # of steps done again, as they were done last
    weights: str | None

    @property
    def again(self) -> int:
        return self.done - len(self.steps)


@dataclass(frozen=True)
class Verdict:
    """What a killed training did otherwise than one in peace."""

    again: int
    other_samples: int  # steps whose last doing trained other samples than in peace
    missed: int  # samples that an epoch went without, all epochs together
    twice: int  # samples that an epoch had more than once
    same_weights: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=SCRIPTS, nargs="*", default=list(SCRIPTS))
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="ecosystem-") as directory, server(Path(directory) / "home") as client:
        runs = Path(directory) / "home" / "runs"
        for script in options.only:
            peaceful = train(client, runs, script, 0, random.Random(options.seed))
            killed = train(client, runs, script, options.kills, random.Random(options.seed))
            rows.append(row(script, killed, compare(peaceful, killed)))
            print(script, peaceful, killed, rows[-1], sep="\n  ", flush=True)
    print("| script | ended | kills | steps done again | steps with other samples | left out | twice | same weights |")
    print("|---|---|---|---|---|---|---|---|", *rows, sep="\n")


def row(script: str, killed: Trained, verdict: Verdict) -> str:
    share = f"{verdict.again} ({verdict.again / max(len(killed.steps), 1):.0%})"
    cells = (verdict.other_samples, verdict.missed, verdict.twice, "yes" if verdict.same_weights else "no")
    return f"| `{script}.py` | {killed.state} | {killed.kills} | {share} | " + " | ".join(map(str, cells)) + " |"


def train(client: Client, runs: Path, script: str, kills: int, chance: random.Random) -> Trained:
    """Submit the script, kill it, wait for its end."""
    body = {
        "script": f"{script}.py",
        "name": script,
        "code": {"path": str(EXAMPLES)},
        "python": sys.executable,
        "ranks": 2,
        "device": "cpu",
        "snapshot": {"every_steps": 20},  # with_rekindle.py obeys; the others save as often by themselves
    }
    job_id = client.submit(body)["id"]
    directory, done, deadline = runs / job_id / "code", 0, time.monotonic() + PATIENCE
    while done < kills and reach(client, job_id, directory, chance.randint(15, 60), deadline):
        kill(client, job_id, chance.randrange(2))
        done += 1
    while client.job(job_id)["state"] not in OVER and time.monotonic() < deadline:
        time.sleep(0.2)
    return trained(client, job_id, directory, done)


def reach(client: Client, job_id: str, directory: Path, steps: int, deadline: float) -> bool:
    """Wait until ``steps`` more have been done; False when the job is over before."""
    aim = len(lines(directory, 0)) + steps
    while len(lines(directory, 0)) < aim:
        if time.monotonic() > deadline or client.job(job_id)["state"] in OVER:
            return False
        time.sleep(0.02)
    return True


def kill(client: Client, job_id: str, rank: int) -> None:
    row = next(row for row in client.ranks(job_id) if row["rank"] == rank)
    os.kill(row["pid"], signal.SIGKILL)


def trained(client: Client, job_id: str, directory: Path, kills: int) -> Trained:
    traces = [lines(directory, rank) for rank in (0, 1)]
    one, other = ({step: samples for step, _, samples in trace} for trace in traces)
    steps = {step: tuple(sorted(one[step] + other[step])) for step in sorted(one.keys() & other.keys())}
    attempts = client.attempts(job_id)
    log = client.log(job_id, 0, "stdout", attempts[-1]["number"], offset=0).data.decode()
    weights = re.findall(r"^weights ([0-9a-f]{64})$", log, re.MULTILINE)
    state = client.job(job_id)["state"]
    return Trained(state, len(attempts), kills, len(traces[0]), steps, weights[-1] if weights else None)


def lines(directory: Path, rank: int) -> list[tuple[int, int, list[int]]]:
    """Step, epoch and samples of each step that the rank has done; a line that a kill has torn is no line."""
    path = directory / f"trace-{rank}.jsonl"
    whole = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [tuple(json.loads(line)) for line in whole if line.endswith("]\n")]


def compare(peaceful: Trained, killed: Trained) -> Verdict:
    other = [step for step, samples in killed.steps.items() if peaceful.steps.get(step) != samples]
    epochs: dict[int, Counter[int]] = {}
    for step, samples in killed.steps.items():
        epochs.setdefault((step - 1) // EPOCH, Counter()).update(samples)
    everything = {sample for samples in peaceful.steps.values() for sample in samples}
    return Verdict(
        again=killed.again,
        other_samples=len(other),
        missed=sum(len(everything - seen.keys()) for seen in epochs.values()),
        twice=sum(count - 1 for seen in epochs.values() for count in seen.values()),
        same_weights=killed.weights is not None and killed.weights == peaceful.weights,
    )


if __name__ == "__main__":
    main()
