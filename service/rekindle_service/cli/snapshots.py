"""`rekindle snapshots`."""

import typer

from rekindle_service.cli import wording
from rekindle_service.cli.output import Output, OutputOption, out, show_ids, show_json, table
from rekindle_service.cli.session import JobArgument, connect, find_job

_COLUMNS = ("STEP", "EPOCH", "SIZE", "VERIFIED", "RANKS", "TAKEN")


def snapshots(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """List the snapshots that a job can go on from."""
    with connect(context) as client:
        taken = client.snapshots(find_job(client, job)["id"])
    match output:
        case Output.JSON:
            show_json(taken)
        case Output.ID:
            show_ids(each["step"] for each in taken)
        case Output.TABLE:
            rows = (
                [
                    str(each["step"]),
                    wording.ABSENT if each["epoch"] is None else str(each["epoch"]),
                    wording.size(each["bytes"]),
                    "yes" if each["verified"] else "no",
                    str(each["world_size"]),
                    wording.clock(each["created_at"]),
                ]
                for each in taken
            )
            out().print(table(_COLUMNS, rows))
