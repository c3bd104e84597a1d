"""`rekindle disk`: what uses the disk of the server, and what could not be deleted."""

from collections.abc import Iterator

import typer
from rich.console import RenderableType
from rich.text import Text

from rekindle_service.cli.bars import bar
from rekindle_service.cli.context import connect
from rekindle_service.cli.formatting import age, size
from rekindle_service.cli.output import OutputOption, out, print_answer
from rekindle_service.cli.tables import Table
from rekindle_service.client import DiskUsage
from rekindle_service.sanitize import sanitize_line

_WIDTH = 24  # cells
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
    yield bar(1 - free / total if total else 0.0, _WIDTH).append(f" {size(free)} of {size(total)} free")
    if usage["lack_of_space"] is not None:
        yield Text(f"No job starts: {sanitize_line(usage['lack_of_space'])}", "yellow")
    sizes = [(words, usage["jobs"][kind]) for kind, words in _KINDS.items()]  # type: ignore[literal-required]
    sizes += [("uploaded code", usage["bundles_bytes"]), ("database", usage["database_bytes"])]
    yield Text()
    yield Table(("FILES", "SIZE"), [[words, size(count)] for words, count in sizes], cut={"FILES": 12})
    if usage["owners"]:
        people = [
            [sanitize_line(each["owner"] or "local"), str(each["jobs"]), size(each["bytes"])]
            for each in usage["owners"]
        ]
        yield Text()
        yield Table(("OWNER", "JOBS", "SIZE"), people, cut={"OWNER": 12})
    if usage["unmeasured"] or usage["pending_deletions"]:
        counts = f"{usage['unmeasured']} jobs are not measured yet; {usage['pending_deletions']} deletions are pending"
        yield Text()
        yield Text(counts, "dim")
    stuck = [
        [sanitize_line(each["path"]), age(each["since"]), sanitize_line(each["reason"])]
        for each in usage["stuck_deletions"]
    ]
    if stuck:
        yield Text()
        yield Table(("CANNOT DELETE", "FOR", "REASON"), stuck, cut={"CANNOT DELETE": 20, "REASON": 20}, wrap="REASON")
