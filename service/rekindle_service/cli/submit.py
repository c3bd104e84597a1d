"""`rekindle submit`: a script, from the user's folder to the queue."""

import os
from pathlib import Path
from typing import Annotated

import typer

from rekindle_service.cli import request_body, wording
from rekindle_service.cli.output import Output, OutputOption, note, out, show_ids, show_json
from rekindle_service.cli.session import connect, find_job, settings_of
from rekindle_service.cli.upload import code_for
from rekindle_service.cli.watch import follow
from rekindle_service.client import Client, Job
from rekindle_service.sanitize import sanitize_line

CONTEXT = {"allow_interspersed_args": False}
"""The first word that is no option is the script; whatever stands behind it belongs to the script."""

_PythonOption = Annotated[
    str | None,
    typer.Option(metavar="PATH|active", help="The job's Python; active: of this shell's. (default: the server's)"),
]
_HangTimeoutOption = Annotated[
    float | None, typer.Option(help="Seconds of standstill that are a hang. (default: learned from its steps)")
]
_AutoOption = Annotated[
    bool, typer.Option("--every-auto", help="Snapshot as often as it pays, whatever the script says.")
]
_BestOption = Annotated[
    str | None, typer.Option(metavar="METRIC|-METRIC", help="Also keep the best one by a metric; -loss: the least.")
]
_CommandArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[SCRIPT] [ARGS]", help="The script, then its own arguments.")
]


def submit(
    context: typer.Context,
    command: _CommandArgument = None,
    module: Annotated[str | None, typer.Option("-m", "--module", help="Run a module, as `python -m` does.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Run one of rekindle's own examples, such as ddp.")] = None,
    code: Annotated[Path | None, typer.Option(help="Folder to copy. (default: this one or the script's)")] = None,
    git: Annotated[str | None, typer.Option(metavar="URL", help="Take the code from this repository instead.")] = None,
    ref: Annotated[str | None, typer.Option(help="Its branch, tag or commit. (default: its head)")] = None,
    name: Annotated[str | None, typer.Option(help="What to call it. (default: after the script)")] = None,
    ranks: Annotated[str | None, typer.Option(metavar="N|MIN:MAX", help="How many processes.")] = None,
    device: Annotated[str | None, typer.Option(metavar="auto|cpu|cuda", help="What the ranks run on.")] = None,
    python: _PythonOption = None,
    env: Annotated[list[str] | None, typer.Option(metavar="K[=V]", help="A variable; K alone copies it.")] = None,
    priority: Annotated[int | None, typer.Option(help="Higher goes first. (default: 0)")] = None,
    after: Annotated[list[str] | None, typer.Option(metavar="JOB", help="Start only when this job succeeded.")] = None,
    max_failures: Annotated[int | None, typer.Option(help="Failures in a row without progress. (default: 3)")] = None,
    hang_timeout: _HangTimeoutOption = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds that all its attempts may take together.")] = None,
    every_steps: Annotated[int | None, typer.Option(help="Snapshot every so many steps.")] = None,
    every_seconds: Annotated[float | None, typer.Option(help="Snapshot every so many seconds.")] = None,
    every_epochs: Annotated[int | None, typer.Option(help="Snapshot every so many epochs.")] = None,
    every_auto: _AutoOption = False,
    keep: Annotated[int | None, typer.Option(help="How many snapshots to keep. (default: 3)")] = None,
    best: _BestOption = None,
    cold: Annotated[bool, typer.Option("--cold", help="Start each attempt in a fresh interpreter.")] = False,
    watch: Annotated[bool, typer.Option("--follow", help="Stay until it has ended, and exit with its fate.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Submit a training script; it is copied now, so later edits do not reach the job.

    rekindle submit --ranks 2 train.py --lr 0.1

    rekindle's options come first; everything behind the script belongs to the script. With --module or --recipe,
    put -- before arguments that begin with a dash.
    """
    kind, value, args = request_body.target_and_args(command or [], module, recipe)
    _note_misplaced(args)
    body = request_body.given(
        name=name,
        args=args,
        ranks=None if ranks is None else request_body.ranks(ranks),
        device=device,
        python=request_body.interpreter(python, os.environ, Path.cwd()),
        env=request_body.environment(env or [], os.environ),
        priority=priority,
        max_failures=max_failures,
        hang_timeout=hang_timeout,
        time_limit=time_limit,
        snapshot=request_body.snapshot_policy(
            every_steps, every_seconds, every_epochs, auto=every_auto, keep=keep, best=best
        ),
        warm=False if cold else None,
    )
    repository = request_body.repository(kind, git, ref, code)
    body |= request_body.given(code=repository)
    folder, body[kind] = (None, value) if repository else request_body.folder_of(kind, value, code, Path.cwd())
    with connect(context) as client:
        if folder is not None:
            body["code"] = code_for(client, settings_of(context), folder)
        body |= request_body.given(after=[find_job(client, each)["id"] for each in after or []])
        _follow(client, client.submit(body), output, to_the_end=watch)


def _note_misplaced(args: list[str]) -> None:
    for option in request_body.misplaced(args):
        note(f"{option} stands behind what is run and is passed to it: rekindle's own options come first")


def _follow(client: Client, job: Job, output: Output, *, to_the_end: bool) -> None:
    """Show the job; raises typer.Exit with its fate where it is to be followed to its end."""
    if not to_the_end or output is Output.TABLE:
        _show(job, output)
    if to_the_end:
        raise typer.Exit(follow(client, job["id"], output))


def _show(job: Job, output: Output) -> None:
    match output:
        case Output.JSON:
            show_json(job)
        case Output.ID:
            show_ids([job["id"]])
        case Output.TABLE:
            situation = wording.situation(job)
            out().print(
                f"{sanitize_line(job['name'])} is job {job['number']} ({job['id']}), {sanitize_line(job['state'])}"
                + (f": {situation}" if situation else "")
            )
