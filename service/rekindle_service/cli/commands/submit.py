"""`rekindle submit`: a script, from the user's directory to the queue."""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from rekindle_service.cli import formatting, source_code
from rekindle_service.cli.commands.experiment import finish as finish_experiment
from rekindle_service.cli.commands.follow import follow as follow_job
from rekindle_service.cli.context import connect, settings_of
from rekindle_service.cli.dry_run import print_validated
from rekindle_service.cli.help_and_errors import words_before
from rekindle_service.cli.job_request import (
    environment,
    job_fields,
    require_order,
    split_arguments,
    target_and_args,
)
from rekindle_service.cli.launch_command import NotTranslatedError, translate
from rekindle_service.cli.terminal import Output, OutputOption, note, print_job, working
from rekindle_service.client import Client, Job, is_local
from rekindle_service.client.api_connection import drop_unset
from rekindle_service.client.models import ValidatedJob
from rekindle_service.experiments.trials import parse_array, with_index
from rekindle_service.sanitize import sanitize_line

CONTEXT = {"allow_interspersed_args": False}
"""The first word that is no option is the script; all words after it are passed to the script."""

COMMAND_HELP = "The script and its arguments."
MODULE_HELP = "Run this module in place of a script, as `python -m` does."
RECIPE_HELP = "Run a training that comes with rekindle, such as ddp; docs/recipes.md lists them."
CODE_HELP = "Directory to copy. (default: the current one, or the script's)"
REF_HELP = "With --git: branch, tag or commit. (default: the head of the repository)"
EXCLUDE_HELP = "Do not copy what matches, as in a .gitignore. Repeatable; .rekindleignore has such lines, too."
GITIGNORE_HELP = "Do not copy what .gitignore files name. (default: copy it)"
KEEP_LINKS_HELP = "Keep links that lead out of the code, such as those to data. (default: reject them)"
ENV_HELP = "Environment variable; K alone copies its value from this shell. Repeatable."
PYTHON_HELP = "Python interpreter of the job; active: that of this shell. (default: the server's)"
RESTART_HELP = "Arguments to append from the second attempt on, in quotes. Repeatable."
PRIORITY_HELP = (
    "Jobs of higher priority start first and stop running ones of lower priority, which resume later: by default only "
    "your own (setting preemption). From -1000 to 1000, without the scope admin to 100 (setting max_priority). "
    "(default: 0)"
)
HOLD_HELP = "Hold the job in the queue until `rekindle resume`. (default: start when slots are free)"
AFTER_HELP = "Start only after this job has succeeded. Repeatable."
AFTER_ANY_HELP = "Start only after this job has ended, in any way. Repeatable."
CONTINUE_HELP = "Begin with the files and snapshots of this job, which must have stopped."
CONTINUE_STEP_HELP = "With --continue: the step of the snapshot to continue from. (default: the latest)"
ARRAY_HELP = "One job for each index; %N runs N at a time. {index} in the arguments becomes the index."
PARALLEL_HELP = "With --array: jobs that run at once, as %N. (default: no limit)"
RANKS_HELP = "Number of ranks; MIN:MAX makes the job elastic. (default: 1)"
DEVICE_HELP = "Kind of device, or the slots to choose from, as in cuda:5,cuda:6. (default: auto)"
PER_RANK_HELP = "Devices of each rank. (default: 1)"
SHARE_HELP = "Part of each GPU that the job takes, as in 0.25; other such jobs get the rest. (default: 1)"
LINKS_HELP = "NVLink between the GPUs of the job. (default: preferred)"
LAUNCH_HELP = "process: one process with all devices; torchrun: one per rank. (default: auto, found in the script)"
RESIZE_HELP = "Give an elastic job more or fewer ranks while it runs. (default: resize)"
WARM_HELP = "Start attempts from a process that has torch loaded, or from a new one. (default: warm)"
SECONDS_HELP = "Take a snapshot every N seconds. (default: off)"
FAILURES_HELP = "Failures in a row without progress before giving up. (default: 3)"
HANG_HELP = (
    "Seconds without progress before a rank counts as hung. (default: learned from the job's steps; 300 without steps)"
)
TIME_HELP = "Maximum seconds of all attempts together. (default: no limit)"
AUTO_HELP = "Take snapshots at the automatic interval. (default: as the script sets it, else automatic)"
KEEP_HELP = "Number of latest snapshots to keep. (default: 3)"
MONITOR_HELP = "Also keep the best snapshot by this logged metric; -loss: lower is better. (default: none)"
WATCH_HELP = "File or directory that the script saves checkpoints to, in any format. Repeatable."
NODES_HELP = "Machines of a job on Slurm; MIN:MAX makes it elastic. (default: 1)"
SLURM_HELP = "Run on Slurm, on one node too; the options below imply it."
SLURM_TIME_HELP = "Limit of one allocation, as sbatch takes it; the job continues in the next one."
SLURM_MEM_HELP = "Memory of each node, as in 32G. (default: twice what the job used before, else that of Slurm)"
GRES_HELP = "Generic resources of each node, as in gpu:a100:4. (default: the GPUs of its ranks)"
GPUS_HELP = "GPUs of each node, as in 4 or a100:4. (default: those of its ranks)"
PROLOGUE_HELP = "Line that bash runs on each node before the ranks, as in 'module load cuda'. Repeatable."
SLURM_EXTRA_HELP = "Another option of sbatch, as in --slurm-extra=--cpus-per-task=8. Repeatable."
DRY_RUN_HELP = "Check the job and show when it would start, without submitting it."
FOLLOW_HELP = "Show the output until the job has ended; the exit code reflects the outcome."

Text = str | None
Int = int | None
Float = float | None
Flag = bool | None
Words = list[str] | None
_in_code = partial(typer.Option, rich_help_panel="Code and environment")
_in_queue = partial(typer.Option, rich_help_panel="Queue")
_in_ranks = partial(typer.Option, rich_help_panel="Ranks and devices")
_in_failures = partial(typer.Option, rich_help_panel="Failures")
_in_snapshots = partial(typer.Option, rich_help_panel="Snapshots (checkpoints)")
_in_slurm = partial(typer.Option, rich_help_panel="Slurm")


def parse_ranks(text: str) -> int | dict[str, int]:
    """``2`` or ``1:4``."""
    low, colon, high = text.partition(":")
    try:
        return {"min": int(low), "max": int(high)} if colon else int(low)
    except ValueError:
        raise typer.BadParameter(f"must be a number or MIN:MAX, as in 2 or 1:4, not {text!r}") from None


def parse_process_count(text: str) -> int:
    """torchrun also accepts ``gpu`` and ``auto``."""
    if not text.isdecimal():
        raise typer.BadParameter(f"{text!r}: write the number of ranks, as in `rekindle submit --ranks 2 train.py`")
    return int(text)


def submit(
    context: typer.Context,
    command: Annotated[Words, typer.Argument(metavar="[SCRIPT] [ARGS]...", help=COMMAND_HELP)] = None,
    follow: Annotated[bool, typer.Option("--follow", help=FOLLOW_HELP)] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help=DRY_RUN_HELP)] = False,
    output: OutputOption = "table",
    module: Annotated[Text, _in_code("-m", "--module", help=MODULE_HELP)] = None,
    recipe: Annotated[Text, _in_code(metavar="NAME", help=RECIPE_HELP)] = None,
    code: Annotated[Path | None, _in_code(help=CODE_HELP)] = None,
    git: Annotated[Text, _in_code(metavar="URL", help="Git repository to take the code from.")] = None,
    ref: Annotated[Text, _in_code(help=REF_HELP)] = None,
    env: Annotated[Words, _in_code(metavar="K[=V]", help=ENV_HELP)] = None,
    on_restart: Annotated[Words, _in_code(metavar="ARGS", help=RESTART_HELP)] = None,
    after: Annotated[Words, _in_queue(metavar="JOB", help=AFTER_HELP)] = None,
    after_any: Annotated[Words, _in_queue(metavar="JOB", help=AFTER_ANY_HELP)] = None,
    continue_from: Annotated[Text, _in_queue("--continue", metavar="JOB", help=CONTINUE_HELP)] = None,
    continue_step: Annotated[Int, _in_queue(metavar="STEP", help=CONTINUE_STEP_HELP)] = None,
    array: Annotated[Text, _in_queue(metavar="0-9[%N]", help=ARRAY_HELP)] = None,
    parallel: Annotated[Int, _in_queue(help=PARALLEL_HELP)] = None,
    nproc_per_node: Annotated[
        Int, _in_ranks("--nproc-per-node", "--nproc_per_node", parser=parse_process_count, hidden=True)
    ] = None,
    # Each option below is sent as the field of its name, or as that of the snapshot policy; see ``job_fields``.
    exclude: Annotated[Words, _in_code(metavar="PATTERN", help=EXCLUDE_HELP)] = None,
    gitignore: Annotated[Flag, _in_code("--gitignore", help=GITIGNORE_HELP)] = None,
    keep_links: Annotated[Flag, _in_code("--keep-links", help=KEEP_LINKS_HELP)] = None,
    python: Annotated[Text, _in_code(metavar="PATH|active", parser=source_code.interpreter, help=PYTHON_HELP)] = None,
    name: Annotated[Text, _in_queue(help="Job name. (default: that of the script)")] = None,
    priority: Annotated[Int, _in_queue(help=PRIORITY_HELP)] = None,
    hold: Annotated[Flag, _in_queue("--hold", help=HOLD_HELP)] = None,
    ranks: Annotated[Text, _in_ranks(metavar="N|MIN:MAX", parser=parse_ranks, help=RANKS_HELP)] = None,
    device: Annotated[Text, _in_ranks(metavar="auto|cpu|cuda|SLOTS", help=DEVICE_HELP)] = None,
    devices_per_rank: Annotated[Int, _in_ranks(help=PER_RANK_HELP)] = None,
    gpu_share: Annotated[Float, _in_ranks(metavar="0-1", help=SHARE_HELP)] = None,
    links: Annotated[Text, _in_ranks(metavar="preferred|required|avoided", help=LINKS_HELP)] = None,
    launch: Annotated[Text, _in_ranks(metavar="auto|torchrun|process", help=LAUNCH_HELP)] = None,
    resizable: Annotated[Flag, _in_ranks("--resize/--no-resize", help=RESIZE_HELP)] = None,
    warm: Annotated[Flag, _in_ranks("--warm/--cold", help=WARM_HELP)] = None,
    max_failures: Annotated[Int, _in_failures(help=FAILURES_HELP)] = None,
    hang_timeout: Annotated[Float, _in_failures(metavar="SECONDS", help=HANG_HELP)] = None,
    time_limit: Annotated[Float, _in_failures(metavar="SECONDS", help=TIME_HELP)] = None,
    every_steps: Annotated[Int, _in_snapshots(help="Take a snapshot every N steps. (default: off)")] = None,
    every_seconds: Annotated[Float, _in_snapshots(metavar="N", help=SECONDS_HELP)] = None,
    every_epochs: Annotated[Int, _in_snapshots(help="Take a snapshot every N epochs. (default: off)")] = None,
    auto: Annotated[Flag, _in_snapshots("--every-auto", help=AUTO_HELP)] = None,
    keep: Annotated[Int, _in_snapshots(help=KEEP_HELP)] = None,
    monitor: Annotated[Text, _in_snapshots(metavar="METRIC|-METRIC", help=MONITOR_HELP)] = None,
    watch: Annotated[Words, _in_snapshots(metavar="PATH", help=WATCH_HELP)] = None,
    # Options of a job on Slurm; all but the first are sent as parts of one field, see ``job_fields``.
    nodes: Annotated[Text, _in_slurm(metavar="N|MIN:MAX", parser=parse_ranks, help=NODES_HELP)] = None,
    slurm: Annotated[bool, _in_slurm("--slurm", help=SLURM_HELP)] = False,
    partition: Annotated[Text, _in_slurm(help="Partition. (default: that of Slurm)")] = None,
    account: Annotated[Text, _in_slurm(help="Account. (default: that of Slurm)")] = None,
    qos: Annotated[Text, _in_slurm(help="Quality of service. (default: that of Slurm)")] = None,
    slurm_time: Annotated[Text, _in_slurm(metavar="TIME", help=SLURM_TIME_HELP)] = None,
    constraint: Annotated[Text, _in_slurm(metavar="FEATURES", help="Features that the nodes must have.")] = None,
    slurm_mem: Annotated[Text, _in_slurm(metavar="SIZE", help=SLURM_MEM_HELP)] = None,
    gres: Annotated[Text, _in_slurm(metavar="NAME[:TYPE]:N", help=GRES_HELP)] = None,
    gpus_per_node: Annotated[Text, _in_slurm(metavar="[TYPE:]N", help=GPUS_HELP)] = None,
    slurm_prologue: Annotated[Words, _in_slurm(metavar="LINE", help=PROLOGUE_HELP)] = None,
    slurm_extra: Annotated[Words, _in_slurm(metavar="OPTION", help=SLURM_EXTRA_HELP)] = None,
) -> None:
    """Submit a training script as a job.

    rekindle submit --ranks 2 train.py --lr 0.1

    The code is copied now, so later edits do not affect the job. Options of rekindle come first; arguments after
    SCRIPT are passed to it: after --, also those that rekindle has. With --module or --recipe, put -- before arguments
    that start with a dash. A command of torchrun or python in place of SCRIPT is translated.
    """
    if module is None and recipe is None:
        command, module, env = _translated(context, command or [], env or [])
    if parallel is not None and array is None:
        raise typer.BadParameter(f"--parallel {parallel} limits the jobs of an array: pass --array, too")
    if dry_run and follow:
        raise typer.BadParameter("--dry-run starts nothing that --follow could show: pass one of them")
    kind, target, args = target_and_args(command or [], module, recipe)
    args = require_order(words_before(context, args), args)
    context.params["ranks"] = _one_of("--ranks", context.params["ranks"], "--nproc_per_node", nproc_per_node)
    body = {**job_fields(context.params), "args": args, "env": environment(env or [], os.environ)}
    body |= {"on_restart": split_arguments(on_restart or []), "exclude": exclude or []}
    directory, body[kind], body["code"] = source_code.locate(kind, target, code, git=git, ref=ref)
    with connect(context) as client:
        if directory is not None:
            body["code"] = source_code.send_directory(client, settings_of(context), directory, body)
        body |= {"after": _ids(client, after), "after_any": _ids(client, after_any)}
        body["continue_from"] = None if continue_from is None else client.find_job(continue_from)["id"]
        on_slurm = {} if body.get("slurm") is None else {"slurm": body["slurm"]}  # an empty object is a request, too
        fields = {**drop_unset(**body), **on_slurm}
        if dry_run:
            print_validated(*validated(client, fields, array), output)
        elif array is not None:
            raise typer.Exit(submit_array(client, fields, array, parallel, output, follow=follow))
        else:
            job = client.submit(fields)
            if job["launch"] == "process" and launch is None:
                note("Started as one process with all its devices, without torchrun; --launch torchrun overrides that")
            if not follow or output == "table":
                _print_submitted(job, output)
            if follow:
                raise typer.Exit(follow_job(client, job["id"], output, with_logs=True))


def _ids(client: Client, references: list[str] | None) -> list[str]:
    return [client.find_job(each)["id"] for each in references or []]


def submit_array(
    client: Client, fields: dict[str, Any], array: str, parallel: int | None, output: Output, *, follow: bool
) -> int:
    """An array is an experiment whose jobs differ in their index; returns the exit code."""
    name = _array_name(fields)
    fields.pop("name", None)
    with working("Submitting the jobs"):
        found = client.submit_experiment(
            {"name": name, "array": array, "base": fields, **drop_unset(parallel=parallel)}
        )
    return finish_experiment(client, found, output, follow=follow)


def _array_name(fields: Mapping[str, Any]) -> str:
    return fields.get("name") or Path(fields.get("script") or fields.get("module") or fields["recipe"]).stem


def validated(client: Client, fields: dict[str, Any], array: str | None) -> tuple[ValidatedJob, int]:
    """What would become of the job, or of the first one of an array, and the number of jobs."""
    if array is None:
        return client.validate(fields), 1
    try:
        indices = parse_array(array).indices
    except ValueError as error:
        raise typer.BadParameter(f"--array {error}") from None
    first = {**with_index(fields, indices[0]), "name": f"{_array_name(fields)}[{indices[0]}]"}
    return client.validate(first, jobs=len(indices)), len(indices)


def _print_submitted(job: Job, output: Output) -> None:
    sentence = f"{sanitize_line(job['name'])} is job {job['number']} ({job['id']}), {formatting.state_name(job)}"
    print_job(job, output, formatting.join([sentence, formatting.status_line(job).removeprefix("held: ")], ": "))
    for warning in job["warnings"]:
        note(f"Warning: {sanitize_line(warning)}")


def _translated(context: typer.Context, command: list[str], env: list[str]) -> tuple[list[str], str | None, list[str]]:
    """Words, module and variables of a command that may begin with a launcher; its other options go to ``context``."""
    own = context.params
    shell_python = "active" if is_local(settings_of(context)) and source_code.active_environment() else None
    try:
        found = translate(command, Path.cwd(), shell_python=shell_python)
    except NotTranslatedError as error:
        raise typer.BadParameter(str(error)) from None
    if found is None:
        return command, None, env
    dropped = f"; rekindle sets {', '.join(found.dropped)} itself" if found.dropped else ""
    note(f"Read as: {sanitize_line(str(found))}{dropped}")
    own["ranks"] = _one_of("--ranks", own["ranks"], "--nproc_per_node", found.ranks)
    if own["python"] is None and found.python is not None:
        own["python"] = source_code.interpreter(found.python)
    if found.is_module:
        return found.args, found.target, [*found.env, *env]
    return [found.target, *found.args], None, [*found.env, *env]


def _one_of(name: str, value: Any, other_name: str, other: Any) -> Any:
    if None not in (value, other) and value != other:
        raise typer.BadParameter(f"{name} {value} and {other_name} {other} contradict each other: pass {name} alone")
    return other if value is None else value
