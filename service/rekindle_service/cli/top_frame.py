"""What `rekindle top` draws: a sight of the server in as many lines as there are, each cut at the edge. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, islice
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from rekindle_service.cli import wording
from rekindle_service.cli.output import STATE_STYLES, state_text
from rekindle_service.client import Attempt, Device, Job, Rank
from rekindle_service.sanitize import sanitize_line

_JOB_COLUMNS = ("#", "NAME", "STATE", "STEP", "DONE", "SPEED", "LEFT", "RANKS", "RESTARTS", "SITUATION")
_RANK_COLUMNS = ("RANK", "STATE", "PHASE", "STEP", "SPEED", "LAST SIGN", "WAITED FOR", "LAST LINE")
_RANK_STYLES = {"running": "blue", "done": "green", "failed": "bold red"}
_SLOT_LINES = 4
_WIDEST = 100_000  # columns


@dataclass(frozen=True, slots=True)
class MachineSight:
    """Slots, the jobs that are not over, and those that ended last."""

    slots: list[Device]
    jobs: list[Job]
    over: list[Job]

    def to_json(self) -> Any:
        return {"devices": self.slots, "jobs": [*self.jobs, *self.over]}

    def ids(self) -> list[str]:
        return [job["id"] for job in self.jobs]

    def head(self, width: int) -> Iterator[Text]:
        counts = {state: len(list(jobs)) for state, jobs in groupby(sorted(job["state"] for job in self.jobs))}
        told = ", ".join(f"{count} {sanitize_line(state)}" for state, count in counts.items()) or "no jobs"
        taken = sum(slot["job"] is not None for slot in self.slots)
        yield _line(f"{told}; {taken} of {len(self.slots)} slots in use")
        yield from list(_slots(self.slots).wrap(Console(width=width), width))[:_SLOT_LINES]

    def rows(self) -> tuple[Sequence[str], list[list[str | Text]]]:
        return _JOB_COLUMNS, [_job_row(job) for job in (*self.jobs, *self.over)]


@dataclass(frozen=True, slots=True)
class JobSight:
    """One job, its attempts and the ranks of the newest one."""

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
        place = [wording.steps(job), wording.epochs(job), wording.speed(job)]
        saved = "" if job["snapshot_step"] is None else f"snapshot of step {job['snapshot_step']}"
        told = ", ".join(part for part in (*place, saved) if part)
        for text in (told, wording.situation(job), _last_end(self.attempts)):
            if text:
                yield _line(text)

    def rows(self) -> tuple[Sequence[str], list[list[str | Text]]]:
        return _RANK_COLUMNS, [_rank_row(rank) for rank in self.ranks]


Sight = MachineSight | JobSight


def frame(sight: Sight, notice: str, width: int, height: int) -> RenderableType:
    """``sight`` in at most ``height`` lines of ``width`` columns, with the rows that did not fit counted."""
    lines = [_title(width), *([_line(notice, "bold yellow")] if notice else []), *sight.head(width), Text("")]
    columns, rows = sight.rows()
    space = height - len(lines) - 1
    if not rows or space < 1:
        return Group(*lines[:height])
    if len(rows) <= space:
        return Group(*lines, _grid(columns, rows))
    return Group(*lines, _grid(columns, rows[: space - 1]), _line(f"… and {len(rows) - space + 1} more", "dim"))


def whole(sight: Sight) -> RenderableType:
    """``sight`` with all its rows, for a file or a pipe."""
    return Group(*sight.head(_WIDEST), _grid(*sight.rows()))


def _title(width: int) -> Text:
    now = f"{datetime.now():%H:%M:%S}"
    return Text(f"{now}  rekindle top (Ctrl-C ends it)"[:width], style="dim", no_wrap=True)


def _line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str | Text]]) -> Table:
    """A row is a line, whatever is in it; the last column gives way first."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns[:-1]:
        grid.add_column(column, no_wrap=True, overflow="ellipsis")
    grid.add_column(columns[-1], overflow="ellipsis")
    for row in rows:
        grid.add_row(*(cell if isinstance(cell, Text) else _line(cell) for cell in row))
    return grid


def _slots(slots: list[Device]) -> Text:
    """``cpu:0 cpu:1 digits   cpu:2 free``: neighbours with the same holder together."""
    told = Text()
    for _, group in groupby(slots, key=lambda slot: slot["job"]):
        together = list(group)
        holder, state = together[0]["job_name"], together[0]["job_state"]
        names = " ".join(sanitize_line(slot["name"]) for slot in together)
        told.append(names + " ", style="dim")
        told.append(sanitize_line(holder or "free"), style=STATE_STYLES.get(state or "", "dim"))
        told.append("   ")
    return told


def _job_row(job: Job) -> list[str | Text]:
    of = "" if job["steps"] is None else f"/{job['steps']}"
    return [
        str(job["number"]),
        sanitize_line(job["name"])[:32],
        state_text("held" if job["state"] == "queued" and job["intent"] == "hold" else job["state"]),
        wording.ABSENT if job["step"] is None else f"{job['step']}{of}",
        wording.ABSENT if job["progress"] is None else f"{job['progress']:.0%}",
        _rate(job["steps_per_second"]),
        wording.ABSENT if job["eta_seconds"] is None else wording.duration(job["eta_seconds"]),
        str(job["world_size"] or wording.wanted_ranks(job)),
        str(job["restarts"]),
        wording.situation(job),
    ]


def _rank_row(rank: Rank) -> list[str | Text]:
    of = "" if rank["steps"] is None else f"/{rank['steps']}"
    age, straggler = rank["heartbeat_age"], rank["straggler"]
    return [
        str(rank["rank"]),
        Text(sanitize_line(rank["state"]), style=_RANK_STYLES.get(rank["state"], "")),
        sanitize_line(rank["phase"] or wording.ABSENT)[:24],
        wording.ABSENT if rank["step"] is None else f"{rank['step']}{of}",
        _rate(rank["steps_per_second"]),
        wording.ABSENT if age is None else f"{age:.1f} s ago" if age < 60 else f"{wording.duration(age)} ago",
        wording.ABSENT if straggler is None else Text(f"{straggler:.0%} of the time", style="bold yellow"),
        sanitize_line(rank["last_line"] or ""),
    ]


def _rate(steps_per_second: float | None) -> str:
    return wording.ABSENT if steps_per_second is None else f"{steps_per_second:.3g}/s"


def _last_end(attempts: list[Attempt]) -> str:
    """Why the newest attempt that has ended did, unless it ended well."""
    ended = islice((each for each in reversed(attempts) if each["outcome"] is not None), 1)
    for attempt in ended:
        ending = attempt["outcome"]
        if ending is not None and ending["class"] != "success":
            return f"attempt {attempt['number']} ended: {sanitize_line(ending['class'])}: {wording.outcome(ending)}"
    return ""
