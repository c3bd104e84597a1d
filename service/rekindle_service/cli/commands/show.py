"""`rekindle show`: what happened to a job, and the history of its attempts."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import groupby

import typer
from rich.console import Console
from rich.text import Text

from rekindle_service.cli import formatting
from rekindle_service.cli.context import JobArgument, connect
from rekindle_service.cli.layout import cut_line, harmless, paragraph
from rekindle_service.cli.terminal import OutputOption, out, print_answer
from rekindle_service.client import (
    Attempt,
    Client,
    Job,
    MetricName,
    ProblemError,
    Rank,
    RankGroup,
    StepTimes,
    Story,
    StoryFrame,
    TimeBreakdown,
)
from rekindle_service.sanitize import sanitize_line

_MAX_METRICS = 6
_MAX_CHECKPOINTS = 5


def show(context: typer.Context, job: JobArgument, output: OutputOption = "table") -> None:
    """Show what happened to a job, its status and attempt history.

    A job that has failed is shown with the cause, the lines of code, the rank and the next step.
    """
    with connect(context) as client:
        found = client.find_job(job)
        attempts, time = client.attempts(found["id"]), client.time_breakdown(found["id"])
        has_ranks = found["state"] == "running" or (found["attempt"] and found["nodes"]["max"] > 1)
        ranks = client.ranks(found["id"]) if has_ranks else []
        directory, story = client.configuration(found["id"])["directory"], client.story(found["id"])
        metrics, steps = client.metric_names(found["id"]), client.step_times(found["id"])
        if output == "table" and sys.stdout.isatty():
            _mark_seen(client, found)
    answer = {**found, "directory": directory, "attempts": attempts, "time": time, "story": story, "metrics": metrics}
    answer["step_times"] = steps
    if not print_answer(output, answer, [found["id"]]):
        console = out()
        for line in job_lines(console, found, attempts, time, directory, story, ranks, metrics, steps):
            console.print(line)


def _mark_seen(client: Client, job: Job) -> None:
    """A person has looked at how the job ended: the overview does not list it as new any more."""
    if job["state"] == "failed" and job["seen_at"] is None:
        with suppress(ProblemError):  # who may only read marks nothing
            client.request("PATCH", f"/jobs/{job['id']}", json={"seen": True})


def job_lines(
    console: Console,
    job: Job,
    attempts: list[Attempt],
    time: TimeBreakdown,
    directory: str,
    story: Story,
    ranks: Sequence[Rank] = (),
    metrics: Sequence[MetricName] = (),
    steps: StepTimes | None = None,
) -> Iterator[Text]:
    """Everything that is known about the job, in lines that fit the terminal."""
    yield cut_line(
        console,
        Text.assemble(harmless(job["name"], "bold"), "  ", formatting.state_text(formatting.state_name(job))),
    )
    has_story = story["kind"] in STYLES
    if has_story:
        yield from story_lines(console, story)
        yield Text()
    for label, value in facts(job, time, directory, ranks, metrics, steps):
        if label != ("status" if has_story else "notice"):
            yield from paragraph(console, value, indent=2, label=Text(f"{label:<10}", "dim"))
    for warning in job["warnings"]:
        yield from paragraph(console, harmless(f"warning: {warning}", "yellow"), indent=2, hanging=2)
    for line in [*checkpoints(job), *history(attempts)]:
        indent = len(line) - len(line.lstrip())
        yield from paragraph(console, line.lstrip(), indent, hanging=2)


def facts(
    job: Job,
    time: TimeBreakdown,
    directory: str,
    ranks: Sequence[Rank] = (),
    metrics: Sequence[MetricName] = (),
    steps: StepTimes | None = None,
) -> Iterator[tuple[str, str | Text]]:
    """The known facts about the job as a whole, as label and text; ``directory`` is its working directory."""
    started, ended = job["started_at"], job["ended_at"]
    silence = "" if formatting.stalled(job) else next(map(formatting.silence, ranks), "")
    lines = {
        "job": f"{job['number']} ({job['id']})",
        "owner": formatting.owner(job),
        "runs": formatting.target(job),
        "ranks": formatting.requested_ranks(job) + formatting.on_devices(job["devices"]),
        "nodes": _ranks_by_node(ranks),
        "priority": str(job["priority"] or ""),
        "slurm": formatting.on_slurm(job),
        "excluded": "; ".join(f"{host}: {why}" for host, why in _excluded(job).items()),
        "waits": _slurm_reason(job),
        "status": formatting.status_line(job),
        "notice": job["notice"] or "",
        "progress": formatting.join([formatting.progress(job), *formatting.epoch_and_speed(job), silence], ", ")
        or _progress_hint(job),
        "metrics": _latest_values(metrics),
        "snapshot": "" if job["snapshot_step"] is None else f"step {job['snapshot_step']}",
        "preempted": formatting.preempted(job).removeprefix("preempted "),
        "restarts": str(job["restarts"] or ""),
        "goodput": _goodput(job, time),
        "time": formatting.time_breakdown(time),
        "step": "" if steps is None else formatting.step_split(steps),
        "limit": "" if steps is None or steps["attempt"] is None else steps["summary"],
        "started": started and formatting.clock(started),
        "ended": ended and formatting.clock(ended),
        "directory": directory,
    }
    yield from ((label, text) for label, text in lines.items() if text)


def _latest_values(metrics: Sequence[MetricName]) -> str:
    """``loss 0.41, acc 0.88 at epoch 3, and 2 more``."""
    if not metrics:
        return ""
    shown, last = metrics[:_MAX_METRICS], metrics[0]
    values = (f"{each['name']} {'nan' if each['value'] is None else format(each['value'], '.4g')}" for each in shown)
    unit = "epoch" if last["epoch"] == last["step"] else "step"
    more = f", and {len(metrics) - len(shown)} more" if len(metrics) > len(shown) else ""
    return f"{', '.join(values)} at {unit} {last['step']}{more}"


def _progress_hint(job: Job) -> str:
    """What to add to a script of which nothing has been read for a minute."""
    started = formatting.local_time(job["started_at"])
    if job["state"] != "running" or started is None or (datetime.now(started.tzinfo) - started).total_seconds() < 60:
        return ""
    return 'not known: print a line such as "Epoch 3/10 loss 0.31", or call rekindle.report(step=3, steps=10)'


def _excluded(job: Job) -> dict[str, str]:
    """Excluded nodes of Slurm by their names, each with the reason."""
    slurm = job.get("slurm")
    return {} if slurm is None else slurm["excluded"]


def _slurm_reason(job: Job) -> str:
    """Why Slurm lets the job wait, unless the status has it."""
    slurm = job.get("slurm")
    reason = "" if slurm is None or job["state"] in ("succeeded", "failed", "cancelled") else slurm["reason"] or ""
    return "" if reason in formatting.status_line(job) else reason


def _ranks_by_node(ranks: Sequence[Rank]) -> str | Text:
    """``n1: ranks 0-3 running``: a line for each node of several."""
    nodes: dict[str, dict[str, list[int]]] = {}
    for rank in ranks:
        nodes.setdefault(rank["host"] or "unknown", {}).setdefault(rank["state"], []).append(rank["rank"])
    lines = (
        f"{node}: " + ", ".join(f"{rank_list(numbers)} {state}" for state, numbers in states.items())
        for node, states in nodes.items()
    )
    return Text("\n").join(map(harmless, lines)) if len(nodes) > 1 else ""


def _goodput(job: Job, time: TimeBreakdown) -> str:
    if time["goodput"] is not None:
        return f"{time['goodput']:.0%} of the time trained"
    return "not known: the script reports no steps, so what it repeated is not known" if job["restarts"] else ""


def checkpoints(job: Job) -> Iterator[str]:
    """The latest checkpoints that the script itself wrote."""
    if job["checkpoints"]:
        yield "  checkpoints of the script itself:"
        yield from (f"    {formatting.checkpoint(each)}" for each in job["checkpoints"][:_MAX_CHECKPOINTS])


def history(attempts: list[Attempt]) -> Iterator[str]:
    """How each attempt started, how far it came and why it ended."""
    for attempt in attempts:
        span = formatting.clock(attempt["started_at"])
        span = f"{span} to {formatting.clock(attempt['ended_at'])}" if attempt["ended_at"] else f"since {span}"
        parts = [f"ranks {attempt['world_size']}{formatting.on_devices(attempt['devices'])}", attempt["start"]]
        yield f"attempt {attempt['number']}  {span}  {formatting.join(parts, ', ')}"
        yield from (f"    {line}" for line in _details(attempt) if line)
    if attempts and (retry := formatting.retry(attempts[-1]["next_try_at"])):
        yield f"    {retry}"


def _details(attempt: Attempt) -> Iterator[str]:
    for fault in attempt["faults"]:
        yield f"fault injected: {formatting.fault(fault['fault'], fault['rank'], fault['snapshot'])}"
    if attempt["outcome"] is None:
        yield attempt["state"]
    else:
        yield f"ended: {formatting.classified_outcome(attempt['outcome'])}"
    yield _steps(attempt)
    if (args := attempt.get("args")) is not None:
        yield f"arguments: {shlex.join(args)}"
    ending = attempt["outcome"]
    if attempt["reason"] and (ending is None or attempt["reason"].lower() not in ending["message"].lower()):
        yield f"then: {attempt['reason']}"


def _steps(attempt: Attempt) -> str:
    """``reached step 133; 13 steps replayed``, as far as it is known."""
    if attempt["last_step"] is None or attempt["state"] == "running":
        return ""
    replayed = attempt["replayed_steps"]
    return f"reached step {attempt['last_step']}" + (
        "" if replayed is None else f"; {formatting.number_of(replayed, 'step')} replayed"
    )


# --- story

STYLES = {"failure": "bold red", "hang": "bold red", "stop": "magenta"}
"""The kinds of stories that add something to the state of a job, and how their titles look."""

_TAB = 4  # cells
_MAX_MESSAGE_LINES = 12
_NOTES = {"current": "", "changed": ", changed since", "unreadable": ""}


def story_lines(console: Console, story: Story) -> Iterator[Text]:
    """Title, cause, frames of the user's code with their source, groups of ranks, same errors, and what to do."""
    yield from paragraph(console, harmless(story["title"], STYLES.get(story["kind"], "bold")))
    for line in _message(story):
        yield from paragraph(console, line, indent=2)
    for frame in [each for each in story["frames"] if each["is_user"]] or story["frames"][:1]:
        yield from _frame(console, frame, indent=2)
    if folded := _folded(story):
        yield Text(f"  … and {formatting.number_of(folded, 'frame')} of libraries", "dim")
    for group in story["groups"]:
        yield from _group(console, group)
    if story["same_error"]:
        others = ", ".join(f"#{each['number']} {each['name']}" for each in story["same_error"])
        yield from paragraph(console, f"The same error: {others}", indent=2, hanging=2)
    if story["next_step"]:
        yield from paragraph(console, harmless(story["next_step"], "cyan"), indent=2)


def _message(story: Story) -> Sequence[str]:
    """The sentence line by line, and the message of the exception where the sentence is shorter."""
    text = story["sentence"]
    raised = story["exception"]
    if raised is not None and raised["message"] not in text:
        text = f"{raised['type']}: {raised['message']}"
    lines = [line for line in text.splitlines() if line.strip()]
    hidden = len(lines) - _MAX_MESSAGE_LINES
    return lines if hidden <= 0 else [*lines[:_MAX_MESSAGE_LINES], f"… and {formatting.number_of(hidden, 'line')} more"]


def _folded(story: Story) -> int:
    users = sum(frame["is_user"] for frame in story["frames"])
    return len(story["frames"]) - (users or min(1, len(story["frames"]))) + story["hidden_frames"]


def _frame(console: Console, frame: StoryFrame, indent: int) -> Iterator[Text]:
    """``train.py:42 in main``, and the lines around it with the one of the frame marked."""
    note = _NOTES.get(frame["source_state"], "")
    where = Text(" " * indent).append_text(harmless(f"{frame['file']}:{frame['line']}", "bold"))
    yield cut_line(console, where.append_text(harmless(f" in {frame['function']}{note}", "dim")))
    numbers = len(str(max((each["line"] for each in frame["source"]), default=0)))
    for each in frame["source"]:
        is_marked = each["line"] == frame["line"]
        text = sanitize_line(each["text"].expandtabs(_TAB).rstrip())
        line = Text(
            f"{' ' * indent}  {'>' if is_marked else ' '} {each['line']:>{numbers}}  ", "" if is_marked else "dim"
        )
        line.append(text, "bold" if is_marked else "dim").rstrip()
        yield cut_line(console, line)


def _group(console: Console, group: RankGroup) -> Iterator[Text]:
    """``ranks 0, 2-15 wait in all_reduce #11 at train.py:42``, and the code where it is the user's."""
    sentence = f"{rank_list(group['ranks'])} {group['what']}"
    yield from paragraph(console, harmless(sentence, "bold"), indent=2)
    for frame in [each for each in group["frames"] if each["is_user"]][:1]:
        yield from _frame(console, frame, indent=4)


def rank_list(ranks: Sequence[int]) -> str:
    """``rank 7`` or ``ranks 0, 2-15``: runs of at least three numbers as a range."""
    runs = ([rank for _, rank in run] for _, run in groupby(enumerate(sorted(ranks)), lambda each: each[1] - each[0]))
    shown = (f"{run[0]}-{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)
    return f"rank{'' if len(ranks) == 1 else 's'} {', '.join(shown)}"
