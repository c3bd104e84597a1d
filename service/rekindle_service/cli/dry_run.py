"""What `rekindle submit --dry-run` prints: the job that was not submitted, and when it would start."""

import shlex
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from rekindle_service.cli import formatting
from rekindle_service.cli.layout import paragraph
from rekindle_service.cli.terminal import Output, out, print_answer
from rekindle_service.client.answers import DisplacedJob, ValidatedJob
from rekindle_service.sanitize import sanitize_line


def print_validated(job: ValidatedJob, jobs: int, output: Output) -> None:
    """``jobs``: how many there would be; ``job`` is the first of them."""
    if not print_answer(output, {**job, "jobs": jobs}, []):
        console = out()
        for line in validated_lines(console, job, jobs):
            console.print(line)


def validated_lines(console: Console, job: ValidatedJob, jobs: int = 1) -> Iterator[Text]:
    """What would be submitted, and when it would start, in lines that fit the terminal."""
    accepted = "would be accepted" if jobs == 1 else f"{jobs} jobs would be accepted; the first:"
    yield from paragraph(console, Text.assemble((sanitize_line(job["name"]), "bold"), f"  {accepted}"))
    for label, value in _prospects(job):
        yield from paragraph(console, value, indent=2, label=Text(f"{label:<10}", "dim"))
    for warning in job["warnings"]:
        yield from paragraph(console, Text(f"warning: {sanitize_line(warning)}", "yellow"), indent=2, hanging=2)
    yield Text("Nothing was submitted.")


def _prospects(job: ValidatedJob) -> Iterator[tuple[str, str]]:
    process = " as one process, without torchrun" if job["launch"] == "process" else ""
    kind = sanitize_line(job["device"].partition(":")[0])
    lines = {
        "runs": sanitize_line(shlex.join(job["command"])),
        "ranks": formatting.requested_ranks(job) + process + formatting.on_devices(job["devices"]),
        "needs": f"{job['slots']:g} {kind} {'slot' if job['slots'] == 1 else 'slots'}" if job["slots"] else "",
        "code": _copied(job),
        "owner": formatting.owner(job),
        "priority": str(job["priority"] or ""),
        "slurm": formatting.on_slurm(job),
        "starts": _start(job),
        "why": sanitize_line(job["reason"]),
    }
    yield from ((label, text) for label, text in lines.items() if text)
    for each in job["displaces"]:
        yield "stops" if each["kind"] == "preempt" else "shrinks", _displaced(each)


def _copied(job: ValidatedJob) -> str:
    """``3 files, 1.2 kB, of /home/ann/digits``; empty for a recipe."""
    if not job["code"]:
        return ""
    files = f"{job['code_files']} {'file' if job['code_files'] == 1 else 'files'}"
    source = job["code"].get("path") or job["code"].get("git") or job["code"]["bundle"]
    commit = f" at {job['code']['commit']}" if "commit" in job["code"] else ""
    return sanitize_line(f"{files}, {formatting.size(job['code_bytes'])}, of {source}{commit}")


def _start(job: ValidatedJob) -> str:
    seconds, position = job["starts_in"], job["queue_position"]
    if seconds == 0:
        return "now"
    when = "not known when" if seconds is None else f"in about {formatting.duration(seconds)}"
    return formatting.join([when, "" if position is None else f"position {position} in the queue"], ", ")


def _displaced(job: DisplacedJob) -> str:
    if job["id"] is None:
        return "a job of another person"
    return sanitize_line(f"{job['name']}, job {job['number']} ({job['id']}) of {job['owner']}")
