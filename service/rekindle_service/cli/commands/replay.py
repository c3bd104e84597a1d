"""`rekindle replay`: compute steps of a job again, and say whether they come out the same."""

import time
from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from rekindle_service.cli.commands.attach_command import attach_terminal, local_home
from rekindle_service.cli.commands.diff_command import EXIT_CODES, diff_lines
from rekindle_service.cli.commands.follow import follow
from rekindle_service.cli.context import JobArgument, connect
from rekindle_service.cli.layout import Table
from rekindle_service.cli.terminal import ExitCode, Output, OutputOption, note, out, print_job, print_line
from rekindle_service.client import Client, Job, Layers, ProblemError

_COLUMNS = ("PHASE", "LAYER", "SHAPE", "LOWEST", "HIGHEST", "NORM", "NOT FINITE")
_POLL_INTERVAL = 1.0  # seconds
_MAX_SAMPLES = 32  # ids that are listed
_STEP_HELP = "First step to compute again. (default: where the loss was not finite, or ranks diverged)"
_SCRIPT_HELP = "Python file: call its before_step(step) and after_step(step) in the first step. (default: none)"
_RANK_HELP = "Rank whose layers are shown, of --pdb, or that alone calls --script. (default: 0; --script: all)"


def replay(
    context: typer.Context,
    job: JobArgument,
    step: Annotated[int | None, Option("--step", min=1, help=_STEP_HELP)] = None,
    until: Annotated[int | None, Option(min=1, metavar="STEP", help="Last step. (default: the first one)")] = None,
    device: Annotated[
        str | None, Option(metavar="auto|cpu|cuda|SLOTS", help="Compute it there. (default: as the original)")
    ] = None,
    record: Annotated[
        bool, Option("--record", help="Record the batch and what each layer computes in the first step.")
    ] = False,
    check_device: Annotated[
        bool, Option("--check-device", help="Replay the step on its device and others, and compare the bits.")
    ] = False,
    script: Annotated[
        Path | None, Option(metavar="FILE", exists=True, dir_okay=False, help=_SCRIPT_HELP, show_default=False)
    ] = None,
    pdb: Annotated[bool, Option("--pdb", help="Open the Python debugger before the first step.")] = False,
    rank: Annotated[int | None, Option(min=0, help=_RANK_HELP)] = None,
    detach: Annotated[bool, Option("--detach", help="Do not wait for the replay.")] = False,
    output: OutputOption = "table",
) -> None:
    """Compute steps of a job again, and compare every digest.

    The replay is a job of its own, with the code, arguments, environment and interpreter of the original, and begins at
    its latest snapshot before the step. The original must have stopped, and is not touched. For scripts that use
    rekindle.Run.
    """
    if pdb and output != "table" and not detach:
        raise typer.BadParameter(f"--pdb uses this terminal: pass --detach with -o {output}, then `rekindle attach`")
    home = local_home(context) if pdb and not detach else None
    text = None if script is None else _read_script(script)
    acts = rank if pdb or script is not None else None
    with connect(context) as client:
        original = client.find_job(job)
        replayed = client.replay(
            original["id"], step, until=until, device=device, record=record, script=text, pdb=pdb, rank=acts,
            check_device=check_device,
        )  # fmt: skip
        if check_device:
            _await_check(client, replayed, output, detach=detach)
            return
        if detach or output == "table":
            print_job(replayed, output, _begins(original, replayed))
        if detach:
            return
        if home is not None and not attach_terminal(client, home, replayed):
            raise typer.Exit(ExitCode.INTERRUPTED)
        code = follow(client, replayed["id"], output, with_logs=script is not None)
        recorded = record and output == "table" and _show_layers(client, replayed["id"], rank or 0)
        if code is not ExitCode.SUCCEEDED:  # as where the loss is not finite
            raise typer.Exit(code)
        found = client.diff(original["id"], replayed["id"])
    for line in diff_lines(found) if output == "table" else ():
        print_line(line)
    if not (recorded and found["verdict"] == "incomparable"):
        raise typer.Exit(EXIT_CODES[found["verdict"]])


def _read_script(path: Path) -> str:
    """Raises BadParameter for a file that is not UTF-8."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        wrong = f"byte {error.start + 1} is 0x{error.object[error.start]:02x}"
        raise typer.BadParameter(f"--script {path}: must be UTF-8, and {wrong}: save the file as UTF-8") from error
    except OSError as error:
        raise typer.BadParameter(f"--script {path}: {error.strerror}") from error


def _await_check(client: Client, job: Job, output: Output, *, detach: bool) -> None:
    """Print the result of a device check, which continues without this command."""
    while job["checked_step"] is not None and not detach:
        time.sleep(_POLL_INTERVAL)
        job = client.job(job["id"])
    print_job(
        job, output, "The device check continues: its result will be the notice" if detach else job["notice"] or ""
    )


def _begins(original: Job, replayed: Job) -> str:
    begins = replayed["continue_step"]
    where = "from the beginning" if begins is None else f"from the snapshot of step {begins}"
    return f"{replayed['name']} is job {replayed['number']}: it repeats job {original['number']} {where}"


def _show_layers(client: Client, job_id: str, rank: int) -> bool:
    """Print what the rank has recorded, if it has come as far as that."""
    try:
        layers = client.layers(job_id, rank)
    except ProblemError as error:
        note(str(error))
        return False
    _print_layers(layers)
    return True


def _print_layers(layers: Layers) -> None:
    ids = ", ".join(map(str, layers["samples"][:_MAX_SAMPLES]))
    more = f" and {len(layers['samples']) - _MAX_SAMPLES} more" if len(layers["samples"]) > _MAX_SAMPLES else ""
    print_line(f"Step {layers['step']}, rank {layers['rank']}: samples {ids}{more}")
    out().print(
        Table(
            _COLUMNS,
            (
                [
                    each["phase"],
                    each["name"],
                    "x".join(map(str, each["shape"])),
                    *("-" if (number := each[key]) is None else f"{number:.4g}" for key in ("low", "high", "norm")),
                    str(each["not_finite"]),
                ]
                for each in layers["tensors"]
            ),
            drop=("SHAPE", "NORM"),
        )
    )
    first = next((each for each in layers["tensors"] if each["not_finite"]), None)
    if first is not None:
        where = (
            f"tensor {first['name']} of the batch"
            if first["phase"] == "batch"
            else f"{first['name']} ({first['phase']})"
        )
        note(f"The first values that are not finite are in {where}.")
