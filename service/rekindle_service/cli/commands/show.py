"""`rekindle show`: a job and the history of its attempts."""

import shlex
from collections.abc import Iterator

import typer
from rich.text import Text

from rekindle_service.cli import formatting
from rekindle_service.cli.context import JobArgument, connect
from rekindle_service.cli.formatting import OutputOption, out, print_answer
from rekindle_service.client import Attempt, Job, TimeBreakdown
from rekindle_service.sanitize import sanitize_line


def show(context: typer.Context, job: JobArgument, output: OutputOption = "table") -> None:
    """Show a job's status and attempt history."""
    with connect(context) as client:
        found = client.find_job(job)
        attempts, time = client.attempts(found["id"]), client.time_breakdown(found["id"])
        directory = client.configuration(found["id"])["directory"]
    answer = {**found, "directory": directory, "attempts": attempts, "time": time}
    if not print_answer(output, answer, [found["id"]]):
        name, state = sanitize_line(found["name"]), formatting.state_text(found["state"])
        out().print(Text.assemble((name, "bold"), "  ", state))
        for label, value in facts(found, time, directory):
            out().print(Text.assemble((f"  {label:<10}", "dim"), value))
        for line in checkpoints(found):
            out().print(line)
        for warning in found["warnings"]:
            out().print(Text(f"  warning: {sanitize_line(warning)}", "yellow"))
        for line in history(attempts):
            out().print(line)


def facts(job: Job, time: TimeBreakdown, directory: str) -> Iterator[tuple[str, str]]:
    """The known facts about the job as a whole, as label and text; ``directory`` is its working directory."""
    started, ended = job["started_at"], job["ended_at"]
    lines = {
        "job": f"{job['number']} ({job['id']})",
        "owner": formatting.owner(job),
        "runs": formatting.target(job),
        "ranks": formatting.requested_ranks(job) + formatting.on_devices(job["devices"]),
        "priority": str(job["priority"] or ""),
        "slurm": formatting.on_slurm(job),
        "waits": _slurm_reason(job),
        "status": formatting.status_line(job),
        "progress": formatting.join([formatting.progress(job), *formatting.epoch_and_speed(job)], ", "),
        "snapshot": "" if job["snapshot_step"] is None else f"step {job['snapshot_step']}",
        "preempted": formatting.preempted(job).removeprefix("preempted "),
        "restarts": str(job["restarts"] or ""),
        "goodput": _goodput(job, time),
        "time": formatting.time_breakdown(time),
        "started": started and formatting.clock(started),
        "ended": ended and formatting.clock(ended),
        "directory": sanitize_line(directory),
    }
    yield from ((label, text) for label, text in lines.items() if text)


def _slurm_reason(job: Job) -> str:
    """Where the status does not say it."""
    slurm = job.get("slurm")
    reason = "" if slurm is None or job["state"] in ("succeeded", "failed", "cancelled") else slurm["reason"] or ""
    return "" if reason == job["waiting_for"] else sanitize_line(reason)


def _goodput(job: Job, time: TimeBreakdown) -> str:
    if time["goodput"] is not None:
        return f"{time['goodput']:.0%} of the time trained"
    return "not known: the script reports no steps, so what it repeated is not known" if job["restarts"] else ""


def checkpoints(job: Job, limit: int = 5) -> Iterator[str]:
    """The latest checkpoints that the script itself wrote."""
    if job["checkpoints"]:
        yield "  checkpoints of the script itself:"
        yield from (f"    {formatting.checkpoint(each)}" for each in job["checkpoints"][:limit])


def history(attempts: list[Attempt]) -> Iterator[str]:
    """How each attempt started, how far it came and why it ended."""
    for attempt in attempts:
        start = "from the start"
        if attempt["resumed_from_path"]:
            verb = "loaded" if attempt["number"] == 1 else "resumed from"
            start = f"{verb} {sanitize_line(attempt['resumed_from_path'])}"
        if attempt["resumed_from_step"]:
            start = f"resumed from step {attempt['resumed_from_step']}"
        span = f"{formatting.clock(attempt['started_at'])} to {formatting.clock(attempt['ended_at'])}"
        ranks = "" if attempt["world_size"] is None else f"ranks {attempt['world_size']}"
        yield f"attempt {attempt['number']}  {span}  {ranks}{formatting.on_devices(attempt['devices'])}, {start}"
        yield from (f"    {line}" for line in _details(attempt) if line)
    if attempts and attempts[-1]["next_try_at"] is not None:
        yield f"    next try at {formatting.clock(attempts[-1]['next_try_at'])}"


def _details(attempt: Attempt) -> Iterator[str]:
    for fault in attempt["faults"]:
        yield f"fault injected: {formatting.fault(fault['fault'], fault['rank'], fault['snapshot'])}"
    if attempt["outcome"] is None:
        yield attempt["state"]
    else:
        yield f"ended: {formatting.classified_outcome(attempt['outcome'])}"
    yield _steps(attempt)
    if (args := attempt.get("args")) is not None:
        yield f"arguments: {sanitize_line(shlex.join(args))}"
    if attempt["reason"]:
        yield f"then: {sanitize_line(attempt['reason'])}"


def _steps(attempt: Attempt) -> str:
    """``reached step 133; 13 steps replayed``, as far as it is known."""
    if attempt["last_step"] is None or attempt["state"] == "running":
        return ""
    replayed = attempt["replayed_steps"]
    return f"reached step {attempt['last_step']}" + ("" if replayed is None else f"; {replayed} steps replayed")
