"""`rekindle diff`: the first step at which two trainings differ, and what can explain it."""

import re
from collections.abc import Iterator
from typing import Annotated

import typer

from rekindle_service.cli.commands.diff_replay import narrowed
from rekindle_service.cli.context import connect, job_argument
from rekindle_service.cli.terminal import ExitCode, OutputOption, print_answer, print_line, working
from rekindle_service.client import JobDiff

_ATTEMPT = re.compile(r"(.+)@(\d{1,9})", re.DOTALL)
_REPLAY_HELP = "Replay the steps in which the difference began, for the exact step, rank, phase and layer."
_HELP = "Id, number or name of a job; JOB@ATTEMPT is one attempt of it, such as 12@1."
EXIT_CODES = {"identical": ExitCode.SUCCEEDED, "different": ExitCode.FAILED, "incomparable": ExitCode.USAGE}


def diff(
    context: typer.Context,
    one: Annotated[str, job_argument(_HELP, "A")],
    other: Annotated[str, job_argument(_HELP, "B")],
    replay: Annotated[bool, typer.Option("--replay", help=_REPLAY_HELP)] = False,
    output: OutputOption = "table",
) -> None:
    """Find the first step at which two trainings differ.

    Shows the phase, ranks and tensors, and what else differs between the jobs. Compared are the digests that
    `rekindle.Run` writes, of two jobs or two attempts, as in `rekindle diff 12@1 12@2`. The exit code is
    0 where they are identical, 1 where they differ, and 2 where nothing can be compared.
    """
    (first, attempt), (second, other_attempt) = split_reference(one), split_reference(other)
    with connect(context) as client:
        jobs = client.find_job(first), client.find_job(second)
        if replay and jobs[0]["id"] == jobs[1]["id"]:
            raise typer.BadParameter("--replay needs two jobs: a replay of either attempt would be the same")
        with working("Comparing digests"):
            found = client.diff(jobs[0]["id"], jobs[1]["id"], attempt=attempt, other_attempt=other_attempt)
        if replay:
            found = narrowed(client, jobs, found)
    difference = found["difference"]
    if not print_answer(output, found, () if difference is None else [difference["step"]]):
        for line in diff_lines(found):
            print_line(line)
    raise typer.Exit(EXIT_CODES[found["verdict"]])


def split_reference(reference: str) -> tuple[str, int | None]:
    """``12@1`` is attempt 1 of job 12."""
    match = _ATTEMPT.fullmatch(reference)
    return (reference, None) if match is None else (match[1], int(match[2]))


def diff_lines(found: JobDiff) -> Iterator[str]:
    """The verdict, what differs between the jobs, the changed lines of code, and the next command."""
    yield found["summary"]
    yield from found["notes"]
    if found["causes"]:
        yield "The jobs differ in:"
    yield from (f"  {cause['text']}" for cause in found["causes"])
    for file in found["code"]:
        if file["diff"]:
            yield f"    --- {file['path']}"
            yield from (f"    {line}" for line in file["diff"].split("\n")[2:])  # without the heading
    if found["next_command"]:
        yield f"Find the step: {found['next_command']}"
