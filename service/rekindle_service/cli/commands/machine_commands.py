"""`rekindle devices`, `disk` and `prune`: the slots and the disk of the server's machine."""

import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Annotated, Any

import typer
from rich.console import RenderableType
from rich.text import Text
from typer import Argument, Option

from rekindle_service.cli import formatting
from rekindle_service.cli.context import YesOption, connect
from rekindle_service.cli.formatting import age, number_of, size
from rekindle_service.cli.help_and_errors import Command, CommandGroup
from rekindle_service.cli.layout import Table, bar, harmless
from rekindle_service.cli.terminal import ExitCode, Output, OutputOption, confirm, note, out, print_answer, print_line
from rekindle_service.client import Device, DiskUsage, PruneItem, PruneResult
from rekindle_service.client.api_connection import drop_unset

# --- devices

_DEVICE_COLUMNS = ("DEVICE", "STATE", "JOBS", "MODEL", "NUMA", "REASON")
_DEVICE_CUT = {"JOBS": 10, "MODEL": 12, "REASON": 20}  # cells
_Name = Annotated[str, Argument(metavar="DEVICE", help="Name of the slot, as in cuda:0 or cpu:1.")]

devices = typer.Typer(name="devices", cls=CommandGroup, invoke_without_command=True)


@devices.callback()
def list_devices(context: typer.Context, output: OutputOption = "table") -> None:
    """List GPUs and CPU slots with their jobs; disable or enable one."""
    if context.invoked_subcommand is not None:
        return
    with connect(context) as client:
        slots = client.devices()["items"]
    if not print_answer(output, slots, (each["name"] for each in slots)):
        out().print(Table(_DEVICE_COLUMNS, map(_device_row, slots), cut=_DEVICE_CUT, drop=("NUMA",), wrap="REASON"))


@devices.command(cls=Command)
def disable(
    context: typer.Context,
    device: _Name,
    reason: Annotated[str, Option(help="Why, for others to read. (default: none)")] = "",
    output: OutputOption = "table",
) -> None:
    """Disable a device: its jobs leave it, and no other gets it.

    For administrators.
    """
    with connect(context) as client:
        row = client.disable_device(device, reason)
    if not print_answer(output, row, [row["name"]]):
        print_line(f"{row['name']} is {row['unusable'] or 'disabled'}")


@devices.command(cls=Command)
def enable(context: typer.Context, device: _Name, output: OutputOption = "table") -> None:
    """Enable a device that a person or a fault has disabled.

    For administrators.
    """
    with connect(context) as client:
        row = client.enable_device(device)
    still = f", but it is not used now: {row['unusable']}" if row["unusable"] else ""
    if not print_answer(output, row, [row["name"]]):
        print_line(f"{row['name']} is enabled{still}")


def _device_row(slot: Device) -> list[str]:
    node = formatting.ABSENT if slot["numa_node"] is None else str(slot["numa_node"])
    jobs = " ".join(slot["jobs"]) or formatting.ABSENT
    model = slot["model"] or formatting.ABSENT
    return [slot["name"], state_of(slot), jobs, model, node, slot["unusable"] or ""]


def state_of(slot: Device) -> str:
    """``held``, ``75 % free``, ``disabled``, ``in use`` by processes of no job, or ``free``."""
    if slot["disabled"]:
        return "disabled"
    if slot["held"]:
        return f"{slot['free_share']:.0%} free" if slot["free_share"] else "held"
    return "in use" if slot["unusable"] else "free"


# --- disk

_BAR_WIDTH = 24  # cells
_KINDS = {"snapshots": "snapshots", "logs": "output and metrics", "code": "code and files of scripts", "other": "other"}


def disk(context: typer.Context, output: OutputOption = "table") -> None:
    """Show what uses the disk, and what could not be deleted."""
    with connect(context) as client:
        usage = client.disk_usage()
    if not print_answer(output, usage, (each["path"] for each in usage["stuck_deletions"])):
        for part in usage_parts(usage):
            out().print(part)


def usage_parts(usage: DiskUsage) -> Iterator[RenderableType]:
    """The disk as a whole, the kinds of files, the people, and deletions that fail."""
    total, free = usage["total_bytes"], usage["free_bytes"]
    yield bar(1 - free / total if total else 0.0, _BAR_WIDTH).append(f" {size(free)} of {size(total)} free")
    if usage["lack_of_space"] is not None:
        yield harmless(f"No job starts: {usage['lack_of_space']}", "yellow")
    sizes = [(words, usage["jobs"][kind]) for kind, words in _KINDS.items()]  # type: ignore[literal-required]
    sizes += [("uploaded code", usage["bundles_bytes"]), ("database", usage["database_bytes"])]
    yield Text()
    yield Table(("FILES", "SIZE"), [[words, size(count)] for words, count in sizes], cut={"FILES": 12})
    if usage["owners"]:
        people = [[each["owner"] or "local", str(each["jobs"]), size(each["bytes"])] for each in usage["owners"]]
        yield Text()
        yield Table(("OWNER", "JOBS", "SIZE"), people, cut={"OWNER": 12})
    if usage["unmeasured"] or usage["pending_deletions"]:
        unmeasured, pending = number_of(usage["unmeasured"], "job"), number_of(usage["pending_deletions"], "deletion")
        counts = f"Not measured yet: {unmeasured}. Pending: {pending}."
        yield Text()
        yield Text(counts, "dim")
    stuck = [[each["path"], age(each["since"]), each["reason"]] for each in usage["stuck_deletions"]]
    if stuck:
        yield Text()
        yield Table(("CANNOT DELETE", "FOR", "REASON"), stuck, cut={"CANNOT DELETE": 20, "REASON": 20}, wrap="REASON")


# --- retention

_PRUNE_COLUMNS = ("KIND", "JOB", "NAME", "SIZE", "REASON")
_PRUNE_CUT = {"NAME": 10, "REASON": 24}  # cells


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
            if sys.stdin.isatty():
                with redirect_stdout(sys.stderr):  # the answer alone is for a program
                    _print_pruned(planned, "table")
            confirm("Remove all this?")
        result = planned if dry_run or not planned["count"] else client.prune(rules, dry_run=False)
    _print_pruned(result, output)
    for failure in result["failures"]:
        note(f"not removed: {_pruned_name(failure['item'])}: {failure['reason']}")
    raise typer.Exit(ExitCode.FAILED if result["failures"] else ExitCode.SUCCEEDED)


def _print_pruned(result: PruneResult, output: Output) -> None:
    if print_answer(output, result, (item["job_id"] or item["name"] for item in result["items"])):
        return
    if result["items"]:
        out().print(Table(_PRUNE_COLUMNS, map(_pruned_row, result["items"]), cut=_PRUNE_CUT, wrap="REASON"))
    if result["count"] > len(result["items"]):
        print_line(f"… and {result['count'] - len(result['items'])} more")
    verb = "would be removed" if result["dry_run"] else "removed"
    items = number_of(result["count"], "item")
    print_line(f"{items}, {size(result['bytes'])}, {verb}." if result["count"] else "Nothing to remove.")


def _pruned_row(item: PruneItem) -> list[str]:
    number = "-" if item["number"] is None else str(item["number"])
    amount = number_of(item["count"], "row") if item["kind"] in ("events", "audit") else size(item["bytes"])
    return [item["kind"], number, item["name"] or "-", amount, item["reason"]]


def _pruned_name(item: PruneItem) -> str:
    return f"{item['kind']} {item['name']}" + ("" if item["number"] is None else f" of job {item['number']}")
