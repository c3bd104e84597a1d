"""`rekindle queue`: who is next, why each job waits, and what each owner has used; fits 80 columns."""

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.cells import set_cell_size
from rich.console import Console
from rich.text import Text

from rekindle_service.cli.context import connect
from rekindle_service.cli.formatting import ABSENT, join, start_time, times
from rekindle_service.cli.output import OutputOption, out, print_answer
from rekindle_service.cli.tables import Table
from rekindle_service.client.models import OwnerShare, Queue, QueuedJob
from rekindle_service.sanitize import sanitize_line

_COLUMNS = (("POS", 4), ("#", 6), ("JOB", 20), ("OWNER", 12), ("PRIORITY", 8), ("SLOTS", 9), ("STARTS", 9))
"""Headings and their widths in cells, 80 together with two blanks after each but the last."""
_RIGHT = {"POS", "#", "PRIORITY"}
_WIDTH = 80
_INDENT = " " * 6
_MEASURE = Console(width=_WIDTH)
_HOUR = 3600.0
_MAX_KIND = 6  # cells


def queue(
    context: typer.Context,
    owner: Annotated[str | None, typer.Option(help="Only jobs of this person. (default: all)")] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of jobs.", min=1, max=200)] = 20,
    output: OutputOption = "table",
) -> None:
    """List the queue, next job first, and why each job waits.

    With estimated starts, and below it what each owner has used.
    """
    with connect(context) as client:
        found = client.queue(owner=owner, limit=limit)
    if print_answer(output, found, (job["job"] for job in found["items"])):
        return
    for line in queue_lines(found):
        out().print(line)
    if found["owners"]:
        out().print()
        out().print(owner_table(found))
        out().print(Text(half_life(found), "dim"))


def queue_lines(found: Queue) -> Iterator[Text]:
    """Two lines for each job: its place, and why it waits."""
    if not found["items"]:
        yield Text("No job waits in the queue.")
        return
    yield Text(_row([heading for heading, _ in _COLUMNS]), "bold")
    for job in found["items"]:
        yield Text(_row(_cells(job)))
        for line in Text(reason(job), "dim").wrap(_MEASURE, _WIDTH - len(_INDENT)):
            line.rstrip()
            yield Text(_INDENT).append_text(line)
    shown, queued = len(found["items"]), found["queued"]
    if shown < queued:
        yield Text(f"{shown} of {queued} queued jobs; --limit shows more", "dim")


def _row(cells: list[str]) -> str:
    """Cells that are too long are cut."""
    padded = [
        cell.rjust(width) if heading in _RIGHT else _cut(cell, width)
        for cell, (heading, width) in zip(cells, _COLUMNS, strict=True)
    ]
    return "  ".join(padded).rstrip()


def _cut(text: str, width: int) -> str:
    cut = set_cell_size(text, width)
    return cut if cut.rstrip() == text.rstrip() else set_cell_size(text, width - 1) + "…"


def _cells(job: QueuedJob) -> list[str]:
    return [
        ABSENT if job["position"] is None else str(job["position"]),
        str(job["number"]),
        sanitize_line(job["name"]),
        sanitize_line(job["owner"]),
        str(job["priority"]),
        _slots(job),
        start_time(job["estimated_start_at"]),
    ]


def _slots(job: QueuedJob) -> str:
    """``4 cuda``, ``0.25 cuda``, ``slurm``."""
    kind = sanitize_line(job["device"].partition(":")[0])[:_MAX_KIND]
    return f"{job['slots']:g} {kind}" if job["slots"] else kind


def reason(job: QueuedJob) -> str:
    """``waits for 3 cpu slots, 1 free; preempted twice``."""
    why = "held: `rekindle resume` releases it" if job["intent"] == "hold" else sanitize_line(job["reason"])
    return join([why, f"preempted {times(job['preemptions'])}" if job["preemptions"] else ""])


# --- owners


def owner_table(found: Queue) -> Table:
    """Who has used least comes first, as in the queue."""
    columns = ("OWNER", "SHARE", "SLOT-HOURS", "SLOTS", "RUNNING", "QUEUED", "LIMITS")
    return Table(columns, map(_owner_row, found["owners"]), cut={"OWNER": 8, "LIMITS": 12}, wrap="LIMITS")


def _owner_row(owner: OwnerShare) -> list[str | Text]:
    slots = "" if owner["max_slots"] is None else f"{owner['max_slots']} slots"
    queued = "" if owner["max_queued"] is None else f"{owner['max_queued']} queued"
    return [
        sanitize_line(owner["owner"]),
        f"{owner['share']:.0%}",
        f"{owner['slot_seconds'] / _HOUR:.2f}",
        f"{owner['slots']:g}",
        str(owner["running"]),
        str(owner["queued"]),
        join([slots, queued], ", ") or ABSENT,
    ]


def half_life(found: Queue) -> str:
    days = found["half_life_days"]
    unit = "day" if days == 1 else "days"
    return f"Slot-hours count half after {days:g} {unit}; who has used least starts first."
