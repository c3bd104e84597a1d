"""`rekindle snapshots`."""

import typer

from rekindle_service.cli import wording
from rekindle_service.cli.output import Output, OutputOption, note, out, show_ids, show_json, table
from rekindle_service.cli.session import JobArgument, connect, find_job
from rekindle_service.client import Snapshot
from rekindle_service.terminal_text import plain_line

_COLUMNS = ("STEP", "EPOCH", "SIZE", "VERIFIED", "RANKS", "TAKEN", "SCORE")


def snapshots(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """List the snapshots that a job can go on from."""
    with connect(context) as client:
        taken = client.snapshots(find_job(client, job)["id"])
    match output:
        case Output.JSON:
            show_json(taken["items"])
        case Output.ID:
            show_ids(each["step"] for each in taken["items"])
        case Output.TABLE:
            rows = (
                [
                    str(each["step"]),
                    wording.ABSENT if each["epoch"] is None else str(each["epoch"]),
                    wording.size(each["bytes"]),
                    "yes" if each["verified"] else "no",
                    str(each["world_size"]),
                    wording.clock(each["created_at"]),
                    _score(each),
                ]
                for each in taken["items"]
            )
            out().print(table(_COLUMNS, rows))
            if taken["cadence"] is not None:
                note(f"taken {plain_line(taken['cadence'])}")


def _score(snapshot: Snapshot) -> str:
    if snapshot["score"] is None:
        return wording.ABSENT
    return f"{snapshot['score']:.6g}" + (" best" if snapshot["best"] else "")
