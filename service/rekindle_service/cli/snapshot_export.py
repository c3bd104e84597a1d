"""`rekindle snapshots export`: plain weights, by the job's own Python, since nothing here may load torch."""

import json
import os
import subprocess
from pathlib import Path
from typing import Annotated, Any

import typer

from rekindle.contract.environment import clean_environment
from rekindle_service.cli import wording
from rekindle_service.cli.output import note, out
from rekindle_service.cli.session import JobArgument, connect, find_job, settings_of
from rekindle_service.client import Job, ProblemError
from rekindle_service.config.home import Home
from rekindle_service.sanitize import sanitize_line

_REFUSED = 2
"""What the export ends with where it knows what is wrong; its standard error is a sentence for people then."""


def export(
    context: typer.Context,
    job: JobArgument,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="A name that ends in .safetensors or .pt.")
    ] = Path("model.safetensors"),
    step: Annotated[int | None, typer.Option(min=0, help="Which snapshot. (default: the newest good one)")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it is there.")] = False,
) -> None:
    """Write the plain weights of a snapshot to a file, for any other program."""
    settings = settings_of(context)
    if settings.url is not None:
        raise _problem("Snapshots are exported on the machine where they lie: run this there, without REKINDLE_URL")
    with connect(context) as client:
        found = find_job(client, job)
    told = _export(settings.home_dir, found, output.absolute(), step, force=force)
    for each in told["skipped"]:
        note(sanitize_line(each))
    size = wording.size(told["bytes"])
    out().print(sanitize_line(f"{output}: {told['tensors']} tensors, {size}, of step {told['step']}"))


def _export(home: Home, job: Job, target: Path, step: int | None, *, force: bool) -> dict[str, Any]:
    """What the export tells about itself. Raises ProblemError."""
    options = ["--job", job["id"]]
    options += [] if step is None else ["--step", str(step)]
    options += ["--force"] if force else []
    snapshots = home.run_dir(job["id"]).snapshots
    command = [job["python"], "-P", "-m", "rekindle.training.export", str(snapshots), str(target), *options]
    environment = {**clean_environment(os.environ), "PYTHONPATH": str(home.worker_path), "CUDA_VISIBLE_DEVICES": ""}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise _problem(f"The job's Python cannot be started: {error}") from error
    said = done.stderr.strip() or "nothing"
    if done.returncode == _REFUSED:
        raise _problem(said.removeprefix("error: "))
    if done.returncode != 0:
        last = said.splitlines()[-1]
        raise _problem(f"The export ended with {done.returncode} in {job['python']}, the job's Python. It said: {last}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def _problem(detail: str) -> ProblemError:
    return ProblemError({"title": "Nothing exported", "detail": detail})
