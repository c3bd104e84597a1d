"""What `rekindle top` shows, what its keys choose, and how both fit the terminal."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import cycle, groupby, islice
from typing import Any, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.text import Text

from rekindle_service.cli import formatting
from rekindle_service.cli.formatting import ABSENT, STATE_STYLES, state_text
from rekindle_service.cli.layout import Table, harmless, progress_bar, slot_bars
from rekindle_service.client import Client, Job, is_settled
from rekindle_service.client.answers import Attempt, Device, Rank, StepTimes
from rekindle_service.sanitize import sanitize_line

# --- keys

KEYS = "↑↓ select  Enter open  l log  s sort  / filter  Esc back  q quit"

_MAX_FILTER = 60  # characters


class KeyRequest(StrEnum):
    """What a key asks for beyond another drawing."""

    QUIT = "quit"
    OPEN = "open"
    BACK = "back"
    LOG = "log"


def _queue_order(job: Job) -> tuple[int, int, int]:
    """Jobs with slots first, then the queue in its order, then jobs that are held or wait for another job."""
    position = job["queue_position"]
    group = 0 if job["state"] != "queued" else 1 if position is not None else 2
    return group, position or 0, -job["number"]


ORDERS: Mapping[str, Callable[[Job], Any]] = {
    "queue": _queue_order,
    "name": lambda job: (job["name"].casefold(), -job["number"]),
    "done": lambda job: -(job["progress"] or 0.0),
    "left": lambda job: float("inf") if job["eta_seconds"] is None else job["eta_seconds"],
    "restarts": lambda job: -job["restarts"],
}


@dataclass(slots=True)
class Controls:
    """``selected`` is the id of a row, which keeps its selection while rows move."""

    order: str = "queue"
    filter: str = ""
    is_typing: bool = False
    selected: str | None = None

    def press(self, key: str, rows: Sequence[str]) -> KeyRequest | None:
        """Act on a key; ``rows`` are the ids of the shown rows, from above."""
        if self.is_typing:
            self._type(key)
            return None
        match key:
            case "q":
                return KeyRequest.QUIT
            case "enter":
                return KeyRequest.OPEN
            case "l":
                return KeyRequest.LOG
            case "up" | "k" | "down" | "j":
                self._move(-1 if key in ("up", "k") else 1, rows)
            case "s":
                self.order = next(islice(cycle(ORDERS), list(ORDERS).index(self.order) + 1, None))
            case "/":
                self.is_typing = True
            case "escape" | "backspace" if self.filter:
                self.filter = ""
            case "escape" | "backspace":
                return KeyRequest.BACK
        return None

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.is_typing = False
            self.filter = "" if key == "escape" else self.filter
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1:
            self.filter = (self.filter + key)[:_MAX_FILTER]

    def _move(self, step: int, rows: Sequence[str]) -> None:
        if rows:
            self.selected = rows[min(max(self.position(rows) + step, 0), len(rows) - 1)]

    def position(self, rows: Sequence[str]) -> int:
        """Where the selected row is; the first where it is gone, or none was selected."""
        return rows.index(self.selected) if self.selected in rows else 0

    def arrange(self, jobs: Iterable[Job]) -> list[Job]:
        """The jobs that have every word of the filter in number, name, state or owner, in the chosen order."""
        words = self.filter.casefold().split()
        shown = (job for job in jobs if all(word in _searched(job) for word in words))
        return sorted(shown, key=ORDERS[self.order])


def _searched(job: Job) -> str:
    return f"#{job['number']} {job['name']} {job['state']} {job['owner'] or ''}".casefold()


# --- views

_LIVE_STATES = ("running", "recovering", "starting", "queued")
_MAX_JOBS = 100  # of one state
_RECENT_JOBS = 20  # jobs that are searched for settled ones
_MAX_SETTLED = 5
_JOB_COLUMNS = ("#", "NAME", "STATE", "STEP", "DONE", "SPEED", "LEFT", "RANKS", "RESTARTS", "STATUS")
_RANK_COLUMNS = ("RANK", "STATE", "PHASE", "STEP", "DONE", "SPEED", "HEARTBEAT", "STRAGGLER", "LAST LINE")
_RANK_STYLES = {"running": "blue", "done": "green", "failed": "bold red"}
_SLOT_LINES = 3


class ViewRow(NamedTuple):
    """``id`` is that of the job, or the number of the rank."""

    id: str
    cells: list[str | Text]


@dataclass(frozen=True, slots=True)
class MachineView:
    """Slots, the jobs that are live or held, and the latest settled ones."""

    slots: list[Device]
    jobs: list[Job]
    settled: list[Job]

    columns = _JOB_COLUMNS

    def to_json(self) -> Any:
        return {"devices": self.slots, "jobs": [*self.jobs, *self.settled]}

    def ids(self) -> list[str]:
        return [job["id"] for job in self.jobs]

    def summary(self, width: int) -> Iterator[Text]:
        counts = {state: len(list(jobs)) for state, jobs in groupby(sorted(job["state"] for job in self.jobs))}
        jobs = ", ".join(f"{count} {state}" for state, count in counts.items()) or "no jobs"
        yield one_line(jobs)
        yield from slot_bars(self.slots)
        yield from list(_slots(self.slots).wrap(Console(width=width), width))[:_SLOT_LINES]

    def rows(self, controls: Controls) -> list[ViewRow]:
        """Live jobs first, then settled ones."""
        shown = [*controls.arrange(self.jobs), *controls.arrange(self.settled)]
        cells = ((job["id"], formatting.job_cells(job)) for job in shown)
        return [ViewRow(job_id, [each[column] for column in self.columns]) for job_id, each in cells]


@dataclass(frozen=True, slots=True)
class JobView:
    """One job, its attempts and the ranks of the latest one."""

    job: Job
    attempts: list[Attempt]
    ranks: list[Rank]
    steps: StepTimes

    columns = _RANK_COLUMNS

    def to_json(self) -> Any:
        return {**self.job, "attempts": self.attempts, "rank_states": self.ranks, "step_times": self.steps}

    def ids(self) -> list[str]:
        return [self.job["id"]]

    def summary(self, width: int) -> Iterator[Text]:
        job = self.job
        yield Text.assemble(harmless(job["name"], "bold"), "  ", state_text(formatting.state_name(job)), no_wrap=True)
        saved = "" if job["snapshot_step"] is None else f"snapshot of step {job['snapshot_step']}"
        progress = formatting.join([formatting.progress(job), *formatting.epoch_and_speed(job), saved], ", ")
        for text in (progress, formatting.status_line(job), _last_failure(self.attempts), *self._step()):
            if text:
                yield one_line(text)

    def _step(self) -> list[str]:
        split = formatting.step_split(self.steps)
        return [f"step {split}", self.steps["summary"]] if split else []

    def rows(self, controls: Controls) -> list[ViewRow]:
        cells = ((str(rank["rank"]), _rank_cells(rank)) for rank in self.ranks)
        return [ViewRow(number, [each[column] for column in self.columns]) for number, each in cells]


View = MachineView | JobView


def machine_view(client: Client) -> MachineView:
    """A job that changes its state between two requests is shown once, in its later state."""
    live = {job["id"]: job for state in _LIVE_STATES for job in client.jobs(state=state, limit=_MAX_JOBS)}
    recent = [job for job in client.jobs(limit=_RECENT_JOBS) if is_settled(job) and job["id"] not in live]
    return MachineView(client.devices()["items"], list(live.values()), recent[:_MAX_SETTLED])


def job_view(client: Client, job_id: str) -> JobView:
    return JobView(client.job(job_id), client.attempts(job_id), client.ranks(job_id), client.step_times(job_id))


def one_line(text: str, style: str = "") -> Text:
    line = harmless(text, style)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


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


def _rank_cells(rank: Rank) -> dict[str, str | Text]:
    age, straggler = rank["heartbeat_age"], rank["straggler"]
    share = rank["step"] / rank["steps"] if rank["step"] is not None and rank["steps"] else None
    return {
        "RANK": str(rank["rank"]),
        "STATE": harmless(rank["state"], _RANK_STYLES.get(rank["state"], "")),
        "PHASE": rank["phase"] or ABSENT,
        "STEP": formatting.step_cell(rank),
        "DONE": progress_bar(share),
        "SPEED": formatting.speed_cell(rank),
        "HEARTBEAT": ABSENT if age is None else f"{age:.1f} s ago" if age < 60 else f"{formatting.duration(age)} ago",
        "STRAGGLER": ABSENT if straggler is None else Text(f"{straggler:.0%} of the time", style="bold yellow"),
        "LAST LINE": rank["last_line"] or "",
    }


def _last_failure(attempts: list[Attempt]) -> str:
    """Why the latest ended attempt has ended, unless it succeeded."""
    for attempt in reversed(attempts):
        if ending := attempt["outcome"]:
            failed = ending["class"] != "success"
            return f"attempt {attempt['number']} ended: {formatting.classified_outcome(ending)}" if failed else ""
    return ""


# --- drawing

_CUT = {"NAME": 8, "STATUS": 12, "PHASE": 8, "LAST LINE": 12}  # cells
_DROP = (
    *("RANKS", "RESTARTS", "SPEED", "LEFT", "STRAGGLER", "PHASE", "HEARTBEAT", "LAST LINE"),
    *("STATUS", "DONE", "STEP", "STATE", "NAME"),
)
_UNLIMITED_WIDTH = 100_000  # columns


def frame(view: View, controls: Controls, warning: str, width: int, height: int) -> RenderableType:
    """``view`` in at most ``height`` lines of ``width`` columns, with a count of the rows that did not fit."""
    lines = [_title(controls), *([one_line(warning, "bold yellow")] if warning else []), *view.summary(width), Text("")]
    rows = view.rows(controls)
    space = height - len(lines) - 1
    if not rows or space < 1:
        return Group(*lines[:height])
    position = controls.position([row.id for row in rows])
    if len(rows) <= space:
        return Group(*lines, _table(view, rows, position))
    room = space - 1
    first = min(max(position - room // 2, 0), len(rows) - room)
    shown = _table(view, rows[first : first + room], position - first)
    return Group(*lines, shown, one_line(f"… and {len(rows) - room} more", "dim"))


def _title(controls: Controls) -> Text:
    """The time and the keys, or the filter while it is typed."""
    if controls.is_typing:
        return one_line(f"filter: {controls.filter}▏", "bold")
    chosen = "" if controls.order == "queue" else f"by {controls.order}  "
    chosen += f"filter: {controls.filter}  " if controls.filter else ""
    return one_line(f"{datetime.now():%H:%M:%S}  {chosen}{KEYS}", "dim")


def full_view(view: View) -> RenderableType:
    """``view`` with all its rows, for a file or a pipe."""
    return Group(*view.summary(_UNLIMITED_WIDTH), _table(view, view.rows(Controls()), None))


def _table(view: View, rows: Sequence[ViewRow], selected: int | None) -> Table:
    return Table(view.columns, [row.cells for row in rows], cut=_CUT, drop=_DROP, selected=selected)
