"""`rekindle submit`: a script, from the user's directory to the queue."""

import shlex
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from rekindle.contract.job_options import OptionGroup
from rekindle_service.cli import formatting, source_code
from rekindle_service.cli.commands.experiment import finish as finish_experiment
from rekindle_service.cli.commands.follow import follow as follow_job
from rekindle_service.cli.context import connect, settings_of
from rekindle_service.cli.help_and_errors import words_before
from rekindle_service.cli.job_interpreter import interpreter, send_with_interpreter
from rekindle_service.cli.job_request import (
    job_fields,
    require_order,
    target_and_args,
    with_job_ids,
    with_job_options,
)
from rekindle_service.cli.launch_command import NotTranslatedError, translate
from rekindle_service.cli.layout import harmless, paragraph
from rekindle_service.cli.terminal import Output, OutputOption, note, out, print_answer, print_job, working
from rekindle_service.client import Client, Job
from rekindle_service.client.answers import DisplacedJob, ValidatedJob
from rekindle_service.client.api_connection import drop_unset
from rekindle_service.experiments.trials import parse_array, with_index

CONTEXT = {"allow_interspersed_args": False}
"""The first word that is no option is the script; all words after it are passed to the script."""

COMMAND_HELP = "The script and its arguments."
MODULE_HELP = "Run this module in place of a script, as `python -m` does."
RECIPE_HELP = "Run a training that comes with rekindle, such as ddp; docs/tutorials.md lists them."
CODE_HELP = "Directory to copy. (default: the current one, or the script's)"
REF_HELP = "With --git: branch, tag or commit. (default: the head of the repository)"
ARRAY_HELP = "One job for each index; %N runs N at a time. {index} in the arguments becomes the index."
PARALLEL_HELP = "With --array: jobs that run at once, as %N. (default: no limit)"
DRY_RUN_HELP = "Check the job and show when it would start, without submitting it."
FOLLOW_HELP = "Show the output until the job has ended; the exit code reflects the outcome."

Words = list[str] | None
_in_code = partial(typer.Option, rich_help_panel=OptionGroup.CODE)
_in_queue = partial(typer.Option, rich_help_panel=OptionGroup.QUEUE)


def parse_process_count(text: str) -> int:
    """torchrun also accepts ``gpu`` and ``auto``."""
    if not text.isdecimal():
        raise typer.BadParameter(f"{text!r}: write the number of ranks, as in `rekindle submit --ranks 2 train.py`")
    return int(text)


@with_job_options
def submit(
    context: typer.Context,
    command: Annotated[Words, typer.Argument(metavar="[SCRIPT] [ARGS]...", help=COMMAND_HELP)] = None,
    follow: Annotated[bool, typer.Option("--follow", help=FOLLOW_HELP)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=DRY_RUN_HELP)] = False,
    output: OutputOption = "table",
    module: Annotated[str | None, typer.Option("-m", "--module", help=MODULE_HELP)] = None,
    recipe: Annotated[str | None, _in_code(metavar="NAME", help=RECIPE_HELP)] = None,
    code: Annotated[Path | None, typer.Option(help=CODE_HELP)] = None,
    git: Annotated[str | None, _in_code(metavar="URL", help="Git repository to take the code from.")] = None,
    ref: Annotated[str | None, _in_code(help=REF_HELP)] = None,
    array: Annotated[str | None, _in_queue(metavar="0-9[%N]", help=ARRAY_HELP)] = None,
    parallel: Annotated[int | None, _in_queue(help=PARALLEL_HELP)] = None,
    nproc_per_node: Annotated[
        int | None,
        typer.Option("--nproc-per-node", "--nproc_per_node", parser=parse_process_count, hidden=True),
    ] = None,
    **options: Any,
) -> None:
    """Submit a training script as a job.

    rekindle submit --ranks 2 train.py --lr 0.1

    The code is copied now, so later edits do not affect the job. Options of rekindle come first; arguments after
    SCRIPT are passed to it: after --, also those that rekindle has. With --module or --recipe, put -- before arguments
    that start with a dash. A command of torchrun or python in place of SCRIPT is translated.
    """
    if parallel is not None and array is None:
        raise typer.BadParameter(f"--parallel {parallel} limits the jobs of an array: pass --array, too")
    if dry_run and follow:
        raise typer.BadParameter("--dry-run starts nothing that --follow could show: pass one of them")
    options["ranks"] = _one_of("--ranks", options["ranks"], "--nproc_per_node", nproc_per_node)
    kind, target, args = target_of(context, command, module, recipe, options)
    args = require_order(words_before(context, args), args)
    send = partial(send_with_interpreter, settings_of(context))
    source = source_code.locate(kind, target, code, git=git, ref=ref)
    with connect(context) as client:
        fields = request_fields(context, client, kind, source, {**job_fields(options), "args": args})
        if dry_run:
            print_validated(*send(lambda body: validated(client, body, array), fields), output)
        elif array is not None:
            body = array_body(fields, array, parallel)
            with working("Submitting the jobs"):
                found = send(client.submit_experiment, body, "base")
            raise typer.Exit(finish_experiment(client, found, output, follow=follow))
        else:
            job = send(client.submit, fields)
            if job["launch"] == "process" and "launch" not in fields:
                note("Started as one process with all its devices, without torchrun; --launch torchrun overrides that")
            if not follow or output == "table":
                _print_submitted(job, output)
            if follow:
                raise typer.Exit(follow_job(client, job["id"], output, with_logs=True))


def target_of(
    context: typer.Context, command: Words, module: str | None, recipe: str | None, options: dict[str, Any]
) -> tuple[str, str, list[str]]:
    """What to run, as (kind, target, arguments); a translated command sets some of ``options``."""
    if module is None and recipe is None:
        command, module, env = _translated(context, command or [], options)
        options["env"] = [*env, *(options["env"] or [])]
    return target_and_args(command or [], module, recipe)


def request_fields(
    context: typer.Context,
    client: Client,
    kind: str,
    source: tuple[Path | None, str, dict[str, Any] | None],
    body: dict[str, Any],
) -> dict[str, Any]:
    """The body of ``POST /jobs``, with code that the server can read; ``source`` is that of ``source_code.locate``."""
    directory, body[kind], body["code"] = source
    if directory is not None:
        body["code"] = source_code.send_directory(client, settings_of(context), directory, body)
    return with_job_ids({name: value for name, value in body.items() if value not in (None, [])}, client)


def array_body(fields: dict[str, Any], array: str, parallel: int | None) -> dict[str, Any]:
    """The request for an array: an experiment whose jobs differ in their index."""
    base = {name: value for name, value in fields.items() if name != "name"}
    return {"name": common_name(fields), "array": array, "base": base, **drop_unset(parallel=parallel)}


def common_name(fields: Mapping[str, Any]) -> str:
    return fields.get("name") or Path(fields.get("script") or fields.get("module") or fields["recipe"]).stem


def validated(client: Client, fields: dict[str, Any], array: str | None) -> tuple[ValidatedJob, int]:
    """What would become of the job, or of the first one of an array, and the number of jobs."""
    if array is None:
        return client.validate(fields), 1
    try:
        indices = parse_array(array).indices
    except ValueError as error:
        raise typer.BadParameter(f"--array {error}") from None
    first = {**with_index(fields, indices[0]), "name": f"{common_name(fields)}[{indices[0]}]"}
    return client.validate(first, jobs=len(indices)), len(indices)


def _print_submitted(job: Job, output: Output) -> None:
    named = f"{job['name']} is job {job['number']} ({job['id']})"
    state, status = formatting.state_name(job), formatting.status_line(job)
    sentence = f"{named}. {status}" if state == "held" else formatting.join([f"{named}, {state}", status], ": ")
    print_job(job, output, sentence)
    for warning in job["warnings"]:
        note(f"Warning: {warning}")


def _translated(
    context: typer.Context, command: list[str], own: dict[str, Any]
) -> tuple[list[str], str | None, list[str]]:
    """Words, module and variables of a command that may begin with a launcher; its other options go to ``own``."""
    name = f"rekindle {context.info_name}"
    try:
        found = translate(command, Path.cwd())
    except NotTranslatedError as error:
        raise typer.BadParameter(str(error).replace("rekindle submit", name)) from None
    if found is None:
        return command, None, []
    dropped = f"; rekindle sets {', '.join(found.dropped)} itself" if found.dropped else ""
    note(f"Read as: {found}{dropped}".replace("rekindle submit", name, 1))
    own["ranks"] = _one_of("--ranks", own["ranks"], "--nproc_per_node", found.ranks)
    if own["python"] is None and found.python is not None:
        own["python"] = interpreter(found.python)
    if found.is_module:
        return found.args, found.target, found.env
    return [found.target, *found.args], None, found.env


def _one_of(name: str, value: Any, other_name: str, other: Any) -> Any:
    if None not in (value, other) and value != other:
        raise typer.BadParameter(f"{name} {value} and {other_name} {other} contradict each other: pass {name} alone")
    return other if value is None else value


# --- what --dry-run prints


def print_validated(job: ValidatedJob, jobs: int, output: Output) -> None:
    """Print the first of ``jobs`` jobs, which were not submitted."""
    if not print_answer(output, {**job, "jobs": jobs}, []):
        console = out()
        for line in validated_lines(console, job, jobs):
            console.print(line)


def validated_lines(console: Console, job: ValidatedJob, jobs: int = 1) -> Iterator[Text]:
    """What would be submitted, and when it would start, in lines that fit the terminal."""
    accepted = "would be accepted" if jobs == 1 else f"{jobs} jobs would be accepted; the first:"
    yield from paragraph(console, Text.assemble(harmless(job["name"], "bold"), f"  {accepted}"))
    for label, value in _prospects(job):
        yield from paragraph(console, value, indent=2, label=Text(f"{label:<10}", "dim"))
    for warning in job["warnings"]:
        yield from paragraph(console, harmless(f"warning: {warning}", "yellow"), indent=2, hanging=2)
    yield Text("Nothing was submitted.")


def _prospects(job: ValidatedJob) -> Iterator[tuple[str, str]]:
    process = " as one process, without torchrun" if job["launch"] == "process" else ""
    kind = job["device"].partition(":")[0]
    lines = {
        "runs": shlex.join(job["command"]),
        "ranks": formatting.requested_ranks(job) + process + formatting.on_devices(job["devices"]),
        "needs": f"{job['slots']:g} {kind} slot{'' if job['slots'] == 1 else 's'}" if job["slots"] else "",
        "code": _copied(job),
        "owner": formatting.owner(job),
        "priority": str(job["priority"] or ""),
        "slurm": formatting.on_slurm(job),
        "starts": _start(job),
        "why": job["reason"],
    }
    yield from ((label, text) for label, text in lines.items() if text)
    for each in job["displaces"]:
        yield "stops" if each["kind"] == "preempt" else "shrinks", _displaced(each)


def _copied(job: ValidatedJob) -> str:
    """``3 files, 1.2 kB, of /home/ann/digits``; empty for a recipe."""
    if not job["code"]:
        return ""
    files = formatting.number_of(job["code_files"], "file")
    source = job["code"].get("path") or job["code"].get("git") or job["code"]["bundle"]
    commit = f" at {job['code']['commit']}" if "commit" in job["code"] else ""
    return f"{files}, {formatting.size(job['code_bytes'])}, of {source}{commit}"


def _start(job: ValidatedJob) -> str:
    seconds, position = job["starts_in"], job["queue_position"]
    if seconds == 0:
        return "now"
    when = "not known when" if seconds is None else f"in about {formatting.duration(seconds)}"
    return formatting.join([when, "" if position is None else f"position {position} in the queue"], ", ")


def _displaced(job: DisplacedJob) -> str:
    if job["id"] is None:
        return "a job of another person"
    return f"{job['name']} (#{job['number']}, {job['id']}) of {job['owner']}"
