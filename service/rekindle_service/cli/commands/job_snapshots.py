"""`rekindle snapshots`: list the snapshots of a job, or export one.

The job's own Python exports plain weights, since no command of rekindle may load torch.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Option

from rekindle.contract.environment import clean_environment
from rekindle.contract.run_dir.script_files import MAX_CHECKPOINTS, MAX_LISTED
from rekindle_service.cli import formatting
from rekindle_service.cli.context import JobArgument, connect, settings_of
from rekindle_service.cli.help_and_errors import Command, CommandGroup
from rekindle_service.cli.layout import Table
from rekindle_service.cli.terminal import OutputOption, note, out, print_answer, print_line, working
from rekindle_service.client import Checkpoint, Job, ProblemError, Snapshot
from rekindle_service.config.home import Home

_COLUMNS = ("STEP", "EPOCH", "SIZE", "VERIFIED", "RANKS", "TAKEN", "SCORE")
_OWN_COLUMNS = ("CHECKPOINT OF THE SCRIPT", "AT", "SIZE", "AGE", "NOTE")
_SUFFIXES = (".safetensors", ".pt")
_FILE = Path("model.safetensors")
_EXPORT_REJECTED = 2
"""Exit code of the export when it knows what is wrong; its standard error is a sentence for people then."""


class _Verbs(CommandGroup):
    """``rekindle snapshots JOB`` is short for ``rekindle snapshots list JOB``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_explicit = bool(args) and args[0] in (*self.commands, *ctx.help_option_names)
        if not is_explicit and len(args) > 1 and not args[1].startswith("-"):  # a verb and a job
            self.resolve_command(ctx, args)  # fails with the nearest verb
        return super().parse_args(ctx, args if is_explicit else ["list", *args])


snapshots = typer.Typer(
    name="snapshots",
    cls=_Verbs,
    help="List the snapshots (checkpoints) of a job, or export one.\n\n"
    "`rekindle snapshots JOB` is short for `rekindle snapshots list JOB`.",
)


@snapshots.command("list", cls=Command)
def list_snapshots(context: typer.Context, job: JobArgument, output: OutputOption = "table") -> None:
    """List what a job can resume from.

    Snapshots, and checkpoints that the script itself wrote; `rekindle resume JOB --from STEP|PATH` continues from one
    of them. ``list`` may be omitted.
    """
    with connect(context) as client:
        found = client.find_job(job)
        answer, own = client.snapshots(found["id"]), found["checkpoints"]
    listed = [*answer["items"], *own]
    if print_answer(output, listed, [*(each["step"] for each in answer["items"]), *(each["path"] for each in own)]):
        return
    if answer["items"] or not own:
        out().print(Table(_COLUMNS, map(_row, answer["items"]), drop=("EPOCH", "RANKS")))
    if own:
        out().print(Table(_OWN_COLUMNS, map(_own_row, own), drop=("SIZE",)))
    if len(own) == MAX_LISTED:
        note(f"These are the latest {MAX_LISTED}; --from takes the path of any of the latest {MAX_CHECKPOINTS}.")
    if answer["policy"] is not None:
        note(f"taken {answer['policy']}")
    if answer["copies"] is not None:
        note(f"copied to {answer['copies']}")


def _own_row(own: Checkpoint) -> list[str]:
    about = "about " if own["estimated"] else ""
    position = [f"{about}{name} {number}" for name in ("epoch", "step") if (number := own[name]) is not None]
    state = "" if own["complete"] else "incomplete"
    loaded = "" if own["loaded"] is None else f"loaded by attempt {own['loaded']}"
    return [
        own["path"],
        formatting.join(position, ", "),
        formatting.size(own["bytes"]),
        formatting.age(own["written_at"]),
        formatting.join([state, loaded], ", "),
    ]


def _row(snapshot: Snapshot) -> list[str]:
    score = formatting.ABSENT if snapshot["score"] is None else f"{snapshot['score']:.6g}"
    return [
        str(snapshot["step"]),
        formatting.ABSENT if snapshot["epoch"] is None else str(snapshot["epoch"]),
        formatting.size(snapshot["bytes"]),
        ("yes" if snapshot["verified"] else "no") + (", off the box" if snapshot["mirrored"] else ""),
        str(snapshot["world_size"]),
        formatting.clock(snapshot["created_at"]),
        f"{score} best" if snapshot["best"] else score,
    ]


@snapshots.command(cls=Command)
def export(
    context: typer.Context,
    job: JobArgument,
    output: Annotated[
        Path, Option("-o", "--output", metavar="FILE", help="File to write, by its suffix .safetensors or .pt.")
    ] = _FILE,
    step: Annotated[int | None, Option(min=0, help="Step of the snapshot. (default: the latest verified)")] = None,
    force: Annotated[bool, Option("--force", help="Replace FILE if it exists. (default: refuse)")] = False,
) -> None:
    """Write the weights of a snapshot to a file for other programs.

    -o names the file here, so there is no -o json.
    """
    if output.suffix not in _SUFFIXES:
        raise typer.BadParameter(f"-o {output}: names the file to write, which ends in {' or '.join(_SUFFIXES)}")
    settings = settings_of(context)
    if settings.url is not None:
        raise _problem("Snapshots are exported on the machine that stores them: run this there, without REKINDLE_URL")
    with connect(context) as client:
        found = client.find_job(job)
    with working(f"Exporting to {output!s}"):
        report = _export(settings.home_dir, found, output.absolute(), step, force=force)
    for each in report["skipped"]:
        note(each)
    tensors, size = formatting.number_of(report["tensors"], "tensor"), formatting.size(report["bytes"])
    print_line(f"{output}: {tensors}, {size}, of step {report['step']}")


def _export(home: Home, job: Job, target: Path, step: int | None, *, force: bool) -> dict[str, Any]:
    """What the export reports on standard output. Raises ProblemError."""
    command = [job["python"], "-P", "-m", "rekindle.training.export"]
    command += [str(home.run_dir(job["id"]).snapshots), str(target), "--job", job["id"]]
    command += [] if step is None else ["--step", str(step)]
    command += ["--force"] if force else []
    from rekindle_service.launch.local.local_launcher import prepare_worker_copy  # no other command needs it

    text: Any = {"encoding": "utf-8", "errors": "replace"}
    try:
        path = str(prepare_worker_copy(home))
        environment = {**clean_environment(os.environ), "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False, **text
        )
    except OSError as error:
        raise _problem(f"The job's Python cannot be started: {error}") from error
    stderr = done.stderr.strip() or "(no output)"
    if done.returncode == _EXPORT_REJECTED:
        raise _problem(stderr.removeprefix("error: "))
    if done.returncode != 0:
        last = stderr.splitlines()[-1]
        raise _problem(f"The export in {job['python']}, the job's Python, exited with {done.returncode}: {last}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def _problem(detail: str) -> ProblemError:
    return ProblemError({"title": "Nothing exported", "detail": detail})
