"""`rekindle top`: slots, jobs and ranks, refreshed every second; a view fits the terminal, cut at its edge."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from rekindle_service.cli import formatting
from rekindle_service.cli.context import OptionalJobArgument, connect
from rekindle_service.cli.formatting import ABSENT, STATE_STYLES, OutputOption, out, print_answer, state_text
from rekindle_service.cli.tables import Table
from rekindle_service.client import Client, NoServerError, ProblemError, ReconnectPolicy, is_settled
from rekindle_service.client.models import Attempt, Device, Job, Rank
from rekindle_service.sanitize import sanitize_line

_INTERVAL = 1.0  # seconds
_LIVE_STATES = ("running", "recovering", "starting", "queued")
_MAX_JOBS = 100  # of one state
_RECENT_JOBS = 20  # jobs that are searched for settled ones
_MAX_SETTLED = 5
_JOB_COLUMNS = ("#", "NAME", "STATE", "STEP", "DONE", "SPEED", "LEFT", "RANKS", "RESTARTS", "STATUS")
_RANK_COLUMNS = ("RANK", "STATE", "PHASE", "STEP", "SPEED", "HEARTBEAT", "STRAGGLER", "LAST LINE")
_RANK_STYLES = {"running": "blue", "done": "green", "failed": "bold red"}
_CUT = {"NAME": 8, "STATUS": 12, "PHASE": 8, "LAST LINE": 12}  # cells
_DROP = (
    *("RANKS", "RESTARTS", "SPEED", "LEFT", "STRAGGLER", "PHASE", "HEARTBEAT", "LAST LINE"),
    *("STATUS", "DONE", "STEP", "STATE", "NAME"),
)
_SLOT_LINES = 4
_MAX_NAME, _MAX_PHASE = 32, 24  # cells
_UNLIMITED_WIDTH = 100_000  # columns


def top(context: typer.Context, job: OptionalJobArgument = None, output: OutputOption = "table") -> None:
    """Watch slots and jobs, or the ranks of one job, until Ctrl-C, which does not affect the jobs.

    It continues through a restart of the server. Without a terminal, and with -o json or -o id: print once and exit.
    """
    with connect(context) as client:
        poll = _poller(client, job)
        view = poll()
        if print_answer(output, view.to_json(), view.ids()):
            return
        if sys.stdout.isatty():
            _watch(poll, view)
        else:
            out().print(full_view(view))


# --- views


@dataclass(frozen=True, slots=True)
class MachineView:
    """Slots, the jobs that are live or held, and the latest settled ones."""

    slots: list[Device]
    jobs: list[Job]
    settled: list[Job]

    def to_json(self) -> Any:
        return {"devices": self.slots, "jobs": [*self.jobs, *self.settled]}

    def ids(self) -> list[str]:
        return [job["id"] for job in self.jobs]

    def head(self, width: int) -> Iterator[Text]:
        counts = {state: len(list(jobs)) for state, jobs in groupby(sorted(job["state"] for job in self.jobs))}
        jobs = ", ".join(f"{count} {sanitize_line(state)}" for state, count in counts.items()) or "no jobs"
        taken = sum(slot["job"] is not None for slot in self.slots)
        yield _line(f"{jobs}; {taken} of {len(self.slots)} slots in use")
        yield from list(_slots(self.slots).wrap(Console(width=width), width))[:_SLOT_LINES]

    def rows(self) -> tuple[Sequence[str], list[list[str | Text]]]:
        shown = (formatting.job_cells(job) for job in (*self.jobs, *self.settled))
        cut = ({**cells, "NAME": cells["NAME"][:_MAX_NAME]} for cells in shown)
        return _JOB_COLUMNS, [[cells[column] for column in _JOB_COLUMNS] for cells in cut]


@dataclass(frozen=True, slots=True)
class JobView:
    """One job, its attempts and the ranks of the latest one."""

    job: Job
    attempts: list[Attempt]
    ranks: list[Rank]

    def to_json(self) -> Any:
        return {**self.job, "attempts": self.attempts, "rank_states": self.ranks}

    def ids(self) -> list[str]:
        return [self.job["id"]]

    def head(self, width: int) -> Iterator[Text]:
        job = self.job
        yield Text.assemble((sanitize_line(job["name"]), "bold"), "  ", state_text(job["state"]), no_wrap=True)
        saved = "" if job["snapshot_step"] is None else f"snapshot of step {job['snapshot_step']}"
        progress = formatting.join([formatting.progress(job), *formatting.epoch_and_speed(job), saved], ", ")
        for text in (progress, formatting.status_line(job), _last_failure(self.attempts)):
            if text:
                yield _line(text)

    def rows(self) -> tuple[Sequence[str], list[list[str | Text]]]:
        return _RANK_COLUMNS, [_rank_row(rank) for rank in self.ranks]


View = MachineView | JobView


def _poller(client: Client, reference: str | None) -> Callable[[], View]:
    if reference is None:
        return lambda: machine_view(client)
    job_id = client.find_job(reference)["id"]
    return lambda: JobView(client.job(job_id), client.attempts(job_id), client.ranks(job_id))


def machine_view(client: Client) -> MachineView:
    """A job that changes its state between two requests is shown once, in its later state."""
    live = {job["id"]: job for state in _LIVE_STATES for job in client.jobs(state=state, limit=_MAX_JOBS)}
    recent = [job for job in client.jobs(limit=_RECENT_JOBS) if is_settled(job) and job["id"] not in live]
    return MachineView(client.devices()["items"], sorted(live.values(), key=_order), recent[:_MAX_SETTLED])


def _order(job: Job) -> tuple[int, int, int]:
    """Jobs with slots first, then the queue in its order, then jobs that are held or wait for another job."""
    position = job["queue_position"]
    group = 0 if job["state"] != "queued" else 1 if position is not None else 2
    return group, position or 0, -job["number"]


def _watch(poll: Callable[[], View], view: View) -> None:
    """Draw on the terminal's alternate screen, which is left whatever ends this."""
    console, unreachable_since = out(), ""

    def on_connection_change(reachable: bool) -> None:
        nonlocal unreachable_since
        unreachable_since = "" if reachable else f"{datetime.now():%H:%M:%S}"

    policy = ReconnectPolicy(on_connection_change)
    policy.on_success()
    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            warning = f"Server unreachable since {unreachable_since}; jobs keep running; retrying."
            live.update(frame(view, warning if unreachable_since else "", *console.size), refresh=True)
            time.sleep(_INTERVAL)
            try:
                view = poll()
            except (NoServerError, ProblemError) as error:
                policy.on_error(error)
            else:
                policy.on_success()


# --- drawing


def frame(view: View, warning: str, width: int, height: int) -> RenderableType:
    """``view`` in at most ``height`` lines of ``width`` columns, with a count of the rows that did not fit."""
    title = Text(f"{datetime.now():%H:%M:%S}  rekindle top (Ctrl-C ends it)"[:width], style="dim", no_wrap=True)
    lines = [title, *([_line(warning, "bold yellow")] if warning else []), *view.head(width), Text("")]
    columns, rows = view.rows()
    space = height - len(lines) - 1
    if not rows or space < 1:
        return Group(*lines[:height])
    if len(rows) <= space:
        return Group(*lines, _rows_table(columns, rows))
    shown = _rows_table(columns, rows[: space - 1])
    return Group(*lines, shown, _line(f"… and {len(rows) - space + 1} more", "dim"))


def _rows_table(columns: Sequence[str], rows: list[list[str | Text]]) -> Table:
    return Table(columns, rows, cut=_CUT, drop=_DROP)


def full_view(view: View) -> RenderableType:
    """``view`` with all its rows, for a file or a pipe."""
    return Group(*view.head(_UNLIMITED_WIDTH), _rows_table(*view.rows()))


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _slots(slots: list[Device]) -> Text:
    """``cpu:0 cpu:1 digits   cpu:2 free``: adjacent slots of one job together."""
    text = Text()
    for _, group in groupby(slots, key=lambda slot: slot["job"]):
        together = list(group)
        holder, state = together[0]["job_name"], together[0]["job_state"]
        text.append(" ".join(sanitize_line(slot["name"]) for slot in together) + " ", style="dim")
        text.append(sanitize_line(holder or "free"), style=STATE_STYLES.get(state or "", "dim"))
        text.append("   ")
    return text


def _rank_row(rank: Rank) -> list[str | Text]:
    age, straggler = rank["heartbeat_age"], rank["straggler"]
    return [
        str(rank["rank"]),
        Text(sanitize_line(rank["state"]), style=_RANK_STYLES.get(rank["state"], "")),
        sanitize_line(rank["phase"] or ABSENT)[:_MAX_PHASE],
        formatting.step_cell(rank),
        formatting.speed_cell(rank),
        ABSENT if age is None else f"{age:.1f} s ago" if age < 60 else f"{formatting.duration(age)} ago",
        ABSENT if straggler is None else Text(f"{straggler:.0%} of the time", style="bold yellow"),
        sanitize_line(rank["last_line"] or ""),
    ]


def _last_failure(attempts: list[Attempt]) -> str:
    """Why the latest ended attempt has ended, unless it succeeded."""
    for attempt in reversed(attempts):
        if ending := attempt["outcome"]:
            failed = ending["class"] != "success"
            return f"attempt {attempt['number']} ended: {formatting.classified_outcome(ending)}" if failed else ""
    return ""
