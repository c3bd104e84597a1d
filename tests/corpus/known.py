"""What page and terminal know of the scripts that people have, as a table: curves, progress, checkpoints.

    python tests/corpus/known.py [--only DIRECTORY ...]

One shape of each script is submitted unchanged, and its last rank is killed once. Prints a row as each job ends.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from cli_process import rekindle
from corpus.shapes import SHAPES, Shape
from corpus.trial import OVER, Output
from e2e.serve_process import ServeProcess
from e2e.served_job import ServedJob
from free_port import free_port
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings
from rekindle_service.run_readers.metric_series import read_run_series

RESUMABLE = {shape.directory: shape for shape in SHAPES}
"""The last shape of each script, which resumes if any does."""
COLUMNS = ("script", "end", "curves: points", "progress", "time left, s", "`ps`", "own checkpoints")


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
    return [shape.name, shown["state"], *_cells(client, job, known)]


def _cells(client: Client, job: ServedJob, known: Known) -> Iterator[str]:
    yield ", ".join(f"{name}: {len(points)}" for name, points in read_run_series(job.run_dir).items()) or "none"
    yield f"{known.progress[0]:.0%} to {known.progress[-1]:.0%}" if known.progress else "none"
    yield f"{known.seconds_left[0]:.0f} to {known.seconds_left[-1]:.0f}" if known.seconds_left else "none"
    yield known.line
    own = client.job(job.id)["checkpoints"]
    yield f"{len(own)}, latest {own[0]['path']}" if own else "none"


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
