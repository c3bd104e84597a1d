"""`rekindle replay`: compute steps of a job again, and say whether they come out the same."""

from typing import Annotated

import typer
from typer import Option

from rekindle_service.cli.commands.diff_command import EXIT_CODES, diff_lines
from rekindle_service.cli.commands.follow import follow
from rekindle_service.cli.context import JobArgument, connect
from rekindle_service.cli.layout import Table
from rekindle_service.cli.terminal import ExitCode, OutputOption, note, out, print_job, print_line
from rekindle_service.client import Client, Job, Layers, ProblemError

_COLUMNS = ("PHASE", "LAYER", "SHAPE", "LOWEST", "HIGHEST", "NORM", "NOT FINITE")
_MAX_SAMPLES = 32  # ids that are listed


def replay(
    context: typer.Context,
    job: JobArgument,
    step: Annotated[int, Option("--step", min=1, help="First step to compute again.")],
    until: Annotated[int | None, Option(min=1, metavar="STEP", help="Last step. (default: the first one)")] = None,
    device: Annotated[
        str | None, Option(metavar="auto|cpu|cuda|SLOTS", help="Compute it there. (default: as the original)")
    ] = None,
    record: Annotated[
        bool, Option("--record", help="Record the batch and what each layer computes in the first step.")
    ] = False,
    rank: Annotated[int, Option(min=0, help="With --record: whose layers to show. (default: 0)")] = 0,
    detach: Annotated[bool, Option("--detach", help="Do not wait for the replay.")] = False,
    output: OutputOption = "table",
) -> None:
    """Compute steps of a job again, and compare every digest.

    The replay is a job of its own, with the code, arguments, environment and interpreter of the original, and begins at
    its latest snapshot before the step. The original must have stopped, and is not touched. For scripts that use
    rekindle.Run.
    """
    with connect(context) as client:
        original = client.find_job(job)
        replayed = client.replay(original["id"], step, until=until, device=device, record=record)
        print_job(replayed, output, _begins(original, replayed))
        if detach:
            return
        code = follow(client, replayed["id"], output)
        recorded = record and output == "table" and _show_layers(client, replayed["id"], rank)
        if code is not ExitCode.SUCCEEDED:  # as where the loss is not finite
            raise typer.Exit(code)
        found = client.diff(original["id"], replayed["id"])
    for line in diff_lines(found) if output == "table" else ():
        print_line(line)
    if not (recorded and found["verdict"] == "incomparable"):
        raise typer.Exit(EXIT_CODES[found["verdict"]])


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
