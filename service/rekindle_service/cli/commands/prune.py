"""`rekindle prune`: show what the rules of retention remove, and remove it."""

import sys
from typing import Annotated, Any

import typer
from typer import Option

from rekindle_service.cli.context import YesOption, connect
from rekindle_service.cli.exit_codes import ExitCode
from rekindle_service.cli.formatting import size
from rekindle_service.cli.output import Output, OutputOption, note, out, print_answer, print_line
from rekindle_service.cli.tables import Table
from rekindle_service.client import PruneItem, PruneResult
from rekindle_service.client.api_connection import drop_unset
from rekindle_service.sanitize import sanitize_line

_COLUMNS = ("KIND", "JOB", "NAME", "SIZE", "REASON")
_CUT = {"NAME": 10, "REASON": 24}  # cells


def _days(what: str) -> Any:
    return Option(
        min=0, metavar="DAYS", help=f"Remove {what} after this number of days. (default: the server's setting)"
    )


def prune(
    context: typer.Context,
    dry_run: Annotated[bool, Option("--dry-run", help="Show what would be removed, and remove nothing.")] = False,
    yes: YesOption = False,
    jobs: Annotated[float | None, _days("finished jobs with all their files")] = None,
    snapshots: Annotated[float | None, _days("all but the latest, best and pinned snapshots of finished jobs")] = None,
    logs: Annotated[float | None, _days("output and metrics of finished jobs")] = None,
    events: Annotated[float | None, _days("events of finished and deleted jobs")] = None,
    bundles: Annotated[float | None, _days("uploaded code that no job refers to")] = None,
    owner: Annotated[str | None, Option(help="Only jobs of this person. (default: all)")] = None,
    output: OutputOption = "table",
) -> None:
    """Remove old jobs, snapshots, logs and uploaded code.

    By the server's settings keep_…_days, or by the rules given here. Jobs that have not ended lose nothing. Exits
    with 1 when something could not be removed.
    """
    rules = drop_unset(
        keep_jobs_days=jobs,
        keep_snapshots_days=snapshots,
        keep_logs_days=logs,
        keep_events_days=events,
        keep_bundles_days=bundles,
        owner=owner,
    )
    with connect(context) as client:
        planned = client.prune(rules)
        if not dry_run and planned["count"] and not yes:
            _confirm(planned)
        result = planned if dry_run or not planned["count"] else client.prune(rules, dry_run=False)
    _print(result, output)
    for failure in result["failures"]:
        note(sanitize_line(f"not removed: {_name(failure['item'])}: {failure['reason']}"))
    raise typer.Exit(ExitCode.FAILED if result["failures"] else ExitCode.SUCCEEDED)


def _confirm(planned: PruneResult) -> None:
    """Ends the command unless a person agrees."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("stdin is not a terminal; pass --yes, or --dry-run to remove nothing")
    _print(planned, "table")
    if not typer.confirm("Remove all this?", err=True):
        note("Nothing was removed.")
        raise typer.Exit(ExitCode.SUCCEEDED)


def _print(result: PruneResult, output: Output) -> None:
    if print_answer(output, result, (item["job_id"] or item["name"] for item in result["items"])):
        return
    if result["items"]:
        out().print(Table(_COLUMNS, map(_row, result["items"]), cut=_CUT, wrap="REASON"))
    if result["count"] > len(result["items"]):
        print_line(f"… and {result['count'] - len(result['items'])} more")
    verb = "would be removed" if result["dry_run"] else "removed"
    items = "1 item" if result["count"] == 1 else f"{result['count']} items"
    print_line(f"{items}, {size(result['bytes'])}, {verb}." if result["count"] else "Nothing to remove.")


def _row(item: PruneItem) -> list[str]:
    number = "-" if item["number"] is None else str(item["number"])
    amount = f"{item['count']} rows" if item["kind"] in ("events", "audit") else size(item["bytes"])
    return [item["kind"], number, sanitize_line(item["name"]) or "-", amount, sanitize_line(item["reason"])]


def _name(item: PruneItem) -> str:
    return f"{item['kind']} {item['name']}" + ("" if item["number"] is None else f" of job {item['number']}")
