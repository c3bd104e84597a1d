"""`rekindle snapshots`."""

from typing import Any

import typer
from typer.core import TyperGroup

from rekindle_service.cli import wording
from rekindle_service.cli.output import Output, OutputOption, note, out, show_ids, show_json, table
from rekindle_service.cli.session import JobArgument, connect, find_job
from rekindle_service.cli.snapshot_export import export
from rekindle_service.client import Snapshot
from rekindle_service.sanitize import sanitize_line

_COLUMNS = ("STEP", "EPOCH", "SIZE", "VERIFIED", "RANKS", "TAKEN", "SCORE")


class _Verbs(TyperGroup):
    """``rekindle snapshots JOB`` is short for ``rekindle snapshots list JOB``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        spelt_out = not args or args[0] in (*self.commands, *ctx.help_option_names)
        return super().parse_args(ctx, args if spelt_out else ["list", *args])


snapshots = typer.Typer(cls=_Verbs, no_args_is_help=True, help="List the snapshots of a job, or export one.")


@snapshots.command("list")
def listing(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """List the snapshots that a job can go on from; ``list`` may be left out."""
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
            if taken["policy"] is not None:
                note(f"taken {sanitize_line(taken['snapshot_policy'])}")


snapshots.command()(export)


def _score(snapshot: Snapshot) -> str:
    if snapshot["score"] is None:
        return wording.ABSENT
    return f"{snapshot['score']:.6g}" + (" best" if snapshot["best"] else "")
