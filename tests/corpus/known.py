"""What page and terminal know of the scripts that people have, as a table: curves, progress, rollback, sweep.

    python tests/corpus/known.py [--only DIRECTORY ...]

One shape of each script is submitted unchanged, and its last rank is killed once. When the job has ended, it goes back
to an older checkpoint of its own, if it has one, and the script is swept over two values. Prints a row for each script.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from cli_process import rekindle
from corpus.shapes import SHAPES, Shape
from corpus.trial import OVER, Output
from e2e.serve_process import ServeProcess
from e2e.served_job import ServedJob
from free_port import free_port
from rekindle.contract.run_dir.journal import CheckpointChosen, read_journal
from rekindle_service.client import Checkpoint, Client
from rekindle_service.config.settings import Settings
from rekindle_service.run_readers.metric_series import read_run_series

RESUMABLE = {shape.directory: shape for shape in SHAPES}
"""The last shape of each script, which resumes if any does."""
SEEN = ("curves: points", "progress", "time left, s", "`ps`", "own checkpoints")
COLUMNS = ("script", "end", *SEEN, "rollback", "sweep")
SWEPT = {
    "ddp_tutorial": "multigpu_torchrun.py 4 1 --batch_size 16,64",
    "mingpt": "main.py",  # has no arguments
    "imagenet": "main.py --dist-url env:// --dist-backend gloo --epochs 3 --lr 0.1,0.01",
    "nanogpt": "train.py --backend=gloo --max_iters=20 --out_dir={snapshots} --learning_rate=0.01,0.001",
    "torchvision_reference": "train.py --epochs 3 --output-dir out --lr 0.1,0.01",
    "lightning_like": "train.py --ckpt_dir out --max_epochs 3,5",
    "hf_trainer_like": "run_classification.py --output_dir out --max_steps 10,20",
    "accelerate_like": "cv_example.py --output_dir out --checkpointing_steps 5 --num_epochs 2,4",
    "hydra_like": "train.py epochs=4 hydra.run.dir=outputs/run lr=0.05,0.01",
    "mp_spawn": "multigpu.py 3,5 1 --gpus 2 --port {port}",  # its only other arguments change no loss
    "data_parallel": "train.py --epochs 3,5",
    "plain": "train.py --save weights.pt --epochs 3,5",
    "sigterm_exit": "train.py --epochs 5,10 --pause 0.15",
    "dcp_sharded": "train.py --steps 10,20",
    "package": "-m speller.train -- --epochs 3,5",
    "local_rank": "train.py --epochs 3,5",
}
"""By directory: the command with two values for an argument that the script has, and a short training."""
_TIMEOUT = 300.0  # seconds, of a sweep


@dataclass
class Known:
    """What was seen while a job ran."""

    progress: list[float] = field(default_factory=list)
    seconds_left: list[float] = field(default_factory=list)
    line: str = ""

    def watch(self, job: dict[str, Any], home: Path) -> None:
        if job["progress"] is not None and job["progress"] not in self.progress:
            self.progress.append(job["progress"])
        if job["eta_seconds"] is not None:
            self.seconds_left.append(job["eta_seconds"])
        if not self.line and len(self.progress) > 2:
            lines = rekindle(home, "ps", variables={"COLUMNS": "80"}).stdout.splitlines()
            self.line = " ".join(next((line for line in lines if " running " in line), "").split())


def row(shape: Shape, home: Path, client: Client, outside: Path) -> list[str]:
    """Run the shape to its end."""
    done = rekindle(home, "submit", "-o", "id", "--device", "cpu", *shape.words(outside, free_port()), cwd=shape.code)
    if done.returncode:
        return [shape.name, f"not submitted: {done.stderr[-200:]}"]
    job = ServedJob(client, home, {"ranks": shape.ranks}, done.stdout.strip())
    known, output, killed = Known(), Output(job, shape), False
    while (shown := client.job(job.id))["state"] not in OVER:
        if shown["state"] == "running":
            known.watch(dict(shown), home)
        if not killed and len(set(output.positions(1))) >= shape.before_fault:
            job.kill_rank(max(job.pids()))
            killed = True
        time.sleep(0.2)
    cells = [shape.name, shown["state"], *_cells(client, job, known)]
    return [*cells, _rollback(client, home, job, output), _sweep(shape, home, job, outside)]


def _cells(client: Client, job: ServedJob, known: Known) -> Iterator[str]:
    yield ", ".join(f"{name}: {len(points)}" for name, points in read_run_series(job.run_dir).items()) or "none"
    yield f"{known.progress[0]:.0%} to {known.progress[-1]:.0%}" if known.progress else "none"
    yield f"{known.seconds_left[0]:.0f} to {known.seconds_left[-1]:.0f}" if known.seconds_left else "none"
    yield known.line
    own = client.job(job.id)["checkpoints"]
    yield f"{len(own)}, latest {own[0]['path']}" if own else "none"


def _rollback(client: Client, home: Path, job: ServedJob, output: Output) -> str:
    """Resume the ended job from an older checkpoint of its script; where it then began, or why it cannot go back."""
    own = [each for each in client.job(job.id)["checkpoints"] if each["complete"]]  # latest first
    older = [each for each in own if _is_older(each, own[0])]
    if not older:
        return f"not possible: none is older than {Path(own[0]['path']).name}" if own else "not possible: no checkpoint"
    chosen, ended = older[len(older) // 2], job.attempt()
    done = rekindle(home, "resume", job.id, "--from", chosen["path"])
    if done.returncode:
        return _error(done.stderr)
    state = client.wait(job.id)["state"]
    at = next(iter(output.after(ended)), None)
    loaded = next(each["resumed_from_path"] for each in client.attempts(job.id) if each["number"] > ended)
    record = [each for each in read_journal(job.run_dir.journal) if isinstance(each, CheckpointChosen)][-1]
    aside = {path.name for path in job.run_dir.root.glob(f"moved-away-{record.run}/*")}
    there = [path for path in record.moved if Path(path).name in aside]
    return (
        f"to {chosen['path']} ({_position(chosen)}; latest: {_position(own[0])}): loaded {loaded or 'nothing'}, "
        f"continued at {at}, {state}; {len(there)} of {len(record.moved)} newer ones in moved-away-{record.run}"
    )


def _is_older(one: Checkpoint, latest: Checkpoint) -> bool:
    """Whether it is of an earlier step; the steps of files that were found together are estimated to be the same."""
    one_at, latest_at = (datetime.fromisoformat(each["written_at"]) for each in (one, latest))
    return _position(one) != _position(latest) or (latest_at - one_at).total_seconds() > 1


def _position(own: Checkpoint) -> str:
    about = "about " if own["estimated"] else ""
    return ", ".join(f"{about}{name} {own[name]}" for name in ("epoch", "step") if own[name] is not None)


def _sweep(shape: Shape, home: Path, job: ServedJob, outside: Path) -> str:
    """Sweep the script for the first loss that the job has printed; the result, or why there is none."""
    goal = next((name for name in read_run_series(job.run_dir) if "loss" in name.lower()), None)
    if goal is None:
        return "no loss in the output"
    words = replace(shape, command=SWEPT[shape.directory]).words(outside, free_port())
    options = ("-o", "json", "--follow", "--device", "cpu", "--goal", goal)
    done = rekindle(home, "sweep", *options, *words, cwd=shape.code, timeout=_TIMEOUT)
    if not done.stdout:
        return _error(done.stderr)
    found = json.loads(done.stdout)
    return f"{found['jobs']} trials, {found['result']['text'] or found['states']}"


def _error(stderr: str) -> str:
    """The sentence of a command that was refused, without the lines about its usage."""
    return next((line for line in stderr.splitlines() if line.startswith("error: ")), stderr[-200:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=sorted(RESUMABLE), default=list(RESUMABLE))
    chosen = parser.parse_args().only
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|", flush=True)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        home.mkdir(mode=0o700)
        with ServeProcess(home), Client.from_home(Settings(home=home)) as client:
            for name in chosen:
                print("| " + " | ".join(row(RESUMABLE[name], home, client, Path(directory) / name)) + " |", flush=True)


if __name__ == "__main__":
    main()
