"""`rekindle show`: a job and the story of its attempts."""

from collections.abc import Iterator
from itertools import zip_longest

import typer
from rich.text import Text

from rekindle_service.cli import wording
from rekindle_service.cli.output import Output, OutputOption, out, show_ids, show_json, state_text
from rekindle_service.cli.session import JobArgument, connect, find_job
from rekindle_service.client import Attempt, Job, JobTime
from rekindle_service.sanitize import sanitize_line


def show(context: typer.Context, job: JobArgument, output: OutputOption = Output.TABLE) -> None:
    """Tell where a job is, and of every attempt how it began, how far it came and why it ended."""
    with connect(context) as client:
        found = find_job(client, job)
        attempts, time = client.attempts(found["id"]), client.time_breakdown(found["id"])
        folder = client.configuration(found["id"])["directory"]
    match output:
        case Output.JSON:
            show_json({**found, "folder": folder, "attempts": attempts, "time": time})
        case Output.ID:
            show_ids([found["id"]])
        case Output.TABLE:
            out().print(Text.assemble((sanitize_line(found["name"]), "bold"), "  ", state_text(found["state"])))
            for label, value in facts(found, time, folder):
                out().print(Text.assemble((f"  {label:<10}", "dim"), value))
            for line in story(attempts):
                out().print(line)


def facts(job: Job, time: JobTime, folder: str) -> Iterator[tuple[str, str]]:
    """What there is to say about the job as a whole, as label and text; ``folder`` is the one that it works in."""
    yield "job", f"{job['number']} ({job['id']})"
    yield "runs", wording.target(job)
    yield "ranks", wording.wanted_ranks(job) + _on(job["devices"])
    place = [wording.steps(job), wording.epochs(job), wording.speed(job)]
    lines = {
        "now": wording.situation(job),
        "progress": ", ".join(part for part in place if part),
        "snapshot": "" if job["snapshot_step"] is None else f"step {job['snapshot_step']}",
        "restarts": str(job["restarts"]) if job["restarts"] else "",
        "goodput": "" if time["goodput"] is None else f"{time['goodput']:.0%} of the time trained",
        "time": wording.time_breakdown(time),
        "started": "" if job["started_at"] is None else wording.clock(job["started_at"]),
        "ended": "" if job["ended_at"] is None else wording.clock(job["ended_at"]),
        "folder": sanitize_line(folder),
    }
    yield from ((label, text) for label, text in lines.items() if text)


def story(attempts: list[Attempt]) -> Iterator[str]:
    """The attempts in order, each with its end and what was lost by it."""
    for attempt, following in zip_longest(attempts, attempts[1:]):
        began = "from the start"
        if attempt["resumed_from_step"]:
            began = f"resumed from step {attempt['resumed_from_step']}"
        span = f"{wording.clock(attempt['started_at'])} to {wording.clock(attempt['ended_at'])}"
        ranks = "" if attempt["world_size"] is None else f"ranks {attempt['world_size']}"
        yield f"attempt {attempt['number']}  {span}  {ranks}{_on(attempt['devices'])}, {began}"
        yield from (f"    {line}" for line in _ending(attempt, following) if line)


def _ending(attempt: Attempt, following: Attempt | None) -> Iterator[str]:
    for fault in attempt["faults"]:
        yield f"fault injected: {wording.fault(fault['fault'], fault['rank'], fault['snapshot'])}"
    ending = attempt["outcome"]
    if ending is None:
        yield "running" if attempt["state"] == "running" else "ended"
    else:
        yield f"ended: {sanitize_line(ending['class'])}: {wording.outcome(ending)}"
    yield lost_work(attempt, following)
    if attempt["reason"]:
        yield f"then: {sanitize_line(attempt['reason'])}"
    if following is None and attempt["next_try_at"] is not None:
        yield f"next try at {wording.clock(attempt['next_try_at'])}"


def lost_work(attempt: Attempt, following: Attempt | None) -> str:
    """How many steps the next attempt has to do again, or an empty text where that is not known.

    The step that the next attempt resumed from is the truth; until there is one, the newest durable snapshot is.
    """
    last = attempt["last_step"]
    if last is None or attempt["state"] == "running":
        return ""
    kept = attempt["snapshot_step"] if following is None else following["resumed_from_step"]
    if kept is None:
        return f"reached step {last}"
    return f"reached step {last}; {max(0, last - kept)} steps lost, the newest snapshot is of step {kept}"


def _on(devices: list[str]) -> str:
    return f" on {sanitize_line(', '.join(devices))}" if devices else ""
