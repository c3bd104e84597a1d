"""What `rekindle top` shows: the slots and jobs of the machine, or one job and its ranks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from rekindle_service.cli import formatting
from rekindle_service.cli.bars import progress_bar, slot_bars
from rekindle_service.cli.formatting import ABSENT, STATE_STYLES, state_text
from rekindle_service.cli.top.controls import Controls
from rekindle_service.client import Client, is_settled
from rekindle_service.client.models import Attempt, Device, Job, Rank
from rekindle_service.sanitize import sanitize_line

_LIVE_STATES = ("running", "recovering", "starting", "queued")
_MAX_JOBS = 100  # of one state
_RECENT_JOBS = 20  # jobs that are searched for settled ones
_MAX_SETTLED = 5
_JOB_COLUMNS = ("#", "NAME", "STATE", "STEP", "DONE", "SPEED", "LEFT", "RANKS", "RESTARTS", "STATUS")
_RANK_COLUMNS = ("RANK", "STATE", "PHASE", "STEP", "DONE", "SPEED", "HEARTBEAT", "STRAGGLER", "LAST LINE")
_RANK_STYLES = {"running": "blue", "done": "green", "failed": "bold red"}
_SLOT_LINES = 3


class Row(NamedTuple):
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

    def head(self, width: int) -> Iterator[Text]:
        counts = {state: len(list(jobs)) for state, jobs in groupby(sorted(job["state"] for job in self.jobs))}
        jobs = ", ".join(f"{count} {sanitize_line(state)}" for state, count in counts.items()) or "no jobs"
        yield one_line(jobs)
        yield from slot_bars(self.slots)
        yield from list(_slots(self.slots).wrap(Console(width=width), width))[:_SLOT_LINES]

    def rows(self, controls: Controls) -> list[Row]:
        """Live jobs first, then settled ones."""
        shown = [*controls.arrange(self.jobs), *controls.arrange(self.settled)]
        return [Row(job["id"], _cells(job, formatting.job_cells(job), self.columns)) for job in shown]


@dataclass(frozen=True, slots=True)
class JobView:
    """One job, its attempts and the ranks of the latest one."""

    job: Job
    attempts: list[Attempt]
    ranks: list[Rank]

    columns = _RANK_COLUMNS

    def to_json(self) -> Any:
        return {**self.job, "attempts": self.attempts, "rank_states": self.ranks}

    def ids(self) -> list[str]:
        return [self.job["id"]]

    def head(self, width: int) -> Iterator[Text]:
        job = self.job
        yield Text.assemble(
            (sanitize_line(job["name"]), "bold"), "  ", state_text(formatting.state_name(job)), no_wrap=True
        )
        saved = "" if job["snapshot_step"] is None else f"snapshot of step {job['snapshot_step']}"
        progress = formatting.join([formatting.progress(job), *formatting.epoch_and_speed(job), saved], ", ")
        for text in (progress, formatting.status_line(job), _last_failure(self.attempts)):
            if text:
                yield one_line(text)

    def rows(self, controls: Controls) -> list[Row]:
        return [Row(str(rank["rank"]), _cells(rank, _rank_cells(rank), self.columns)) for rank in self.ranks]


View = MachineView | JobView


def machine_view(client: Client) -> MachineView:
    """A job that changes its state between two requests is shown once, in its later state."""
    live = {job["id"]: job for state in _LIVE_STATES for job in client.jobs(state=state, limit=_MAX_JOBS)}
    recent = [job for job in client.jobs(limit=_RECENT_JOBS) if is_settled(job) and job["id"] not in live]
    return MachineView(client.devices()["items"], list(live.values()), recent[:_MAX_SETTLED])


def job_view(client: Client, job_id: str) -> JobView:
    return JobView(client.job(job_id), client.attempts(job_id), client.ranks(job_id))


def one_line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _cells(shown: Job | Rank, cells: dict[str, str | Text], columns: Sequence[str]) -> list[str | Text]:
    share = shown["step"] / shown["steps"] if shown["step"] is not None and shown["steps"] else None
    return [{**cells, "DONE": progress_bar(share)}[column] for column in columns]


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
    return {
        "RANK": str(rank["rank"]),
        "STATE": Text(sanitize_line(rank["state"]), style=_RANK_STYLES.get(rank["state"], "")),
        "PHASE": sanitize_line(rank["phase"] or ABSENT),
        "STEP": formatting.step_cell(rank),
        "SPEED": formatting.speed_cell(rank),
        "HEARTBEAT": ABSENT if age is None else f"{age:.1f} s ago" if age < 60 else f"{formatting.duration(age)} ago",
        "STRAGGLER": ABSENT if straggler is None else Text(f"{straggler:.0%} of the time", style="bold yellow"),
        "LAST LINE": sanitize_line(rank["last_line"] or ""),
    }


def _last_failure(attempts: list[Attempt]) -> str:
    """Why the latest ended attempt has ended, unless it succeeded."""
    for attempt in reversed(attempts):
        if ending := attempt["outcome"]:
            failed = ending["class"] != "success"
            return f"attempt {attempt['number']} ended: {formatting.classified_outcome(ending)}" if failed else ""
    return ""
