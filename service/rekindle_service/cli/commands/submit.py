"""`rekindle submit`: a script, from the user's directory to the queue."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from rekindle.contract.job import SnapshotPolicy
from rekindle_service.cli import formatting, source_code
from rekindle_service.cli.commands.experiment import finish as finish_experiment
from rekindle_service.cli.commands.wait import follow as follow_job
from rekindle_service.cli.context import connect, settings_of
from rekindle_service.cli.formatting import Output, OutputOption, note, print_job
from rekindle_service.cli.launch_command import NotTranslatedError, translate
from rekindle_service.client import Client, Job, is_local
from rekindle_service.client.calls import drop_unset
from rekindle_service.sanitize import sanitize_line

CONTEXT = {"allow_interspersed_args": False}
"""The first word that is no option is the script; all words after it are passed to the script."""

FOLLOW_HELP = "Show the output until completion; the exit code reflects the outcome."
RANKS_HELP = "Number of ranks; MIN:MAX makes the job elastic. (default: 1)"
DEVICE_HELP = "Kind of device, or the slots to choose from, as in cuda:5,cuda:6. (default: auto)"
LAUNCH_HELP = "process: one process with all devices; torchrun: one per rank. (default: auto, found in the script)"
LINKS_HELP = "NVLink between the GPUs. (default: preferred)"
PYTHON_HELP = "Python interpreter of the job; active: that of this shell. (default: the server's)"
HANG_HELP = "Seconds without progress before a rank counts as hung. (default: learned from the job's steps)"
WATCH_HELP = "File or directory that the script saves checkpoints to, in whatever format."
MONITOR_HELP = "Also keep the best snapshot by this logged metric; -loss: lower is better."
RESTART_HELP = "Arguments to append from the second attempt on, in quotes. Repeatable."
CONTINUE_HELP = "Begin with the files and snapshots of this job, which must have stopped."
CONTINUE_STEP_HELP = "With --continue: the step of the snapshot to continue from. (default: the latest)"
EXCLUDE_HELP = "Do not copy what matches, as in a .gitignore. Repeatable; .rekindleignore has such lines, too."
NODES_HELP = "Machines of a job on Slurm; MIN:MAX makes it elastic. (default: 1)"
SLURM_HELP = "Run on Slurm, on one node too; the options below imply it."
SLURM_TIME_HELP = "Limit of one allocation, as sbatch takes it; the job continues in the next one."
SLURM_EXTRA_HELP = "Another option of sbatch, as in --slurm-extra=--mem=32G. Repeatable."
RESIZE_HELP = "Give an elastic job more or fewer ranks while it runs. (default: resize)"
SHARE_HELP = "Part of each GPU that the job takes, as in 0.25; other such jobs get the rest. (default: 1)"
ARRAY_HELP = "One job for each index; %N runs N at a time. {index} in the arguments becomes the index."
KEEP_LINKS_HELP = "Keep links that lead out of the code, such as those to data."

Text = str | None
Int = int | None
Float = float | None
Flag = bool | None
Words = list[str] | None
option = typer.Option

_OWN_OPTIONS = ("--ranks", "--follow", "--max-failures", "--on-restart", "--nproc_per_node", "--nproc-per-node")
"""That scripts hardly ever have."""


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
        raise typer.BadParameter(
            f"{text!r}: rekindle needs the number of ranks, as in `rekindle submit --ranks 2 train.py`"
        )
    return int(text)


def submit(
    context: typer.Context,
    command: Annotated[Words, typer.Argument(metavar="[SCRIPT] [ARGS]", help="The script and its arguments.")] = None,
    module: Annotated[Text, option("-m", "--module", help="Run a module, as `python -m` does.")] = None,
    recipe: Annotated[Text, option(help="Run one of rekindle's recipes, such as ddp.")] = None,
    code: Annotated[Path | None, option(help="Directory to copy. (default: the current one, or the script's)")] = None,
    git: Annotated[Text, option(metavar="URL", help="Git repository to take the code from.")] = None,
    ref: Annotated[Text, option(help="Branch, tag or commit of the repository. (default: its head)")] = None,
    env: Annotated[Words, option(metavar="K[=V]", help="Environment variable; K alone copies its value.")] = None,
    after: Annotated[Words, option(metavar="JOB", help="Start only after this job has succeeded.")] = None,
    after_any: Annotated[Words, option(metavar="JOB", help="Start only after this job has ended, in any way.")] = None,
    continue_from: Annotated[Text, option("--continue", metavar="JOB", help=CONTINUE_HELP)] = None,
    continue_step: Annotated[Int, option(metavar="STEP", help=CONTINUE_STEP_HELP)] = None,
    on_restart: Annotated[Words, option(metavar="ARGS", help=RESTART_HELP)] = None,
    array: Annotated[Text, option(metavar="0-9[%N]", help=ARRAY_HELP)] = None,
    parallel: Annotated[Int, option(help="Jobs of the array that run at once, as %N. (default: no limit)")] = None,
    nproc_per_node: Annotated[
        Int, option("--nproc-per-node", "--nproc_per_node", parser=parse_process_count, hidden=True)
    ] = None,
    follow: Annotated[bool, option("--follow", help=FOLLOW_HELP)] = False,
    output: OutputOption = "table",
    # Each option below is sent as the field of its name, or as that of the snapshot policy; see ``job_fields``.
    name: Annotated[Text, option(help="Job name. (default: that of the script)")] = None,
    ranks: Annotated[Text, option(metavar="N|MIN:MAX", parser=parse_ranks, help=RANKS_HELP)] = None,
    device: Annotated[Text, option(metavar="auto|cpu|cuda|SLOTS", help=DEVICE_HELP)] = None,
    devices_per_rank: Annotated[Int, option(help="Devices of each rank. (default: 1)")] = None,
    launch: Annotated[Text, option(metavar="auto|torchrun|process", help=LAUNCH_HELP)] = None,
    links: Annotated[Text, option(metavar="preferred|required|avoided", help=LINKS_HELP)] = None,
    python: Annotated[Text, option(metavar="PATH|active", parser=source_code.interpreter, help=PYTHON_HELP)] = None,
    priority: Annotated[Int, option(help="Jobs of higher priority start first. (default: 0)")] = None,
    hold: Annotated[Flag, option("--hold", help="Hold the job in the queue until `rekindle resume`.")] = None,
    resizable: Annotated[Flag, option("--resize/--no-resize", help=RESIZE_HELP)] = None,
    gpu_share: Annotated[Float, option(help=SHARE_HELP)] = None,
    max_failures: Annotated[Int, option(help="Failures without progress before giving up. (default: 3)")] = None,
    hang_timeout: Annotated[Float, option(help=HANG_HELP)] = None,
    time_limit: Annotated[Float, option(help="Maximum seconds of all attempts together. (default: no limit)")] = None,
    every_steps: Annotated[Int, option(help="Take a snapshot every N steps.")] = None,
    every_seconds: Annotated[Float, option(help="Take a snapshot every N seconds.")] = None,
    every_epochs: Annotated[Int, option(help="Take a snapshot every N epochs.")] = None,
    auto: Annotated[Flag, option("--every-auto", help="Take snapshots at the automatic interval.")] = None,
    keep: Annotated[Int, option(help="Number of latest snapshots to keep. (default: 3)")] = None,
    monitor: Annotated[Text, option(metavar="METRIC|-METRIC", help=MONITOR_HELP)] = None,
    watch: Annotated[Words, option(metavar="PATH", help=WATCH_HELP)] = None,
    warm: Annotated[Flag, option("--warm/--cold", help="Fork attempts from a warm Python. (default: warm)")] = None,
    exclude: Annotated[Words, option(metavar="PATTERN", help=EXCLUDE_HELP)] = None,
    gitignore: Annotated[Flag, option("--gitignore", help="Do not copy what .gitignore files name.")] = None,
    keep_links: Annotated[Flag, option("--keep-links", help=KEEP_LINKS_HELP)] = None,
    # Options of a job on Slurm; all but the first are sent as parts of one field, see ``job_fields``.
    nodes: Annotated[Text, option(metavar="N|MIN:MAX", parser=parse_ranks, help=NODES_HELP)] = None,
    slurm: Annotated[bool, option("--slurm", help=SLURM_HELP)] = False,
    partition: Annotated[Text, option(help="Partition of Slurm.")] = None,
    account: Annotated[Text, option(help="Account in Slurm.")] = None,
    qos: Annotated[Text, option(help="Quality of service in Slurm.")] = None,
    slurm_time: Annotated[Text, option(metavar="TIME", help=SLURM_TIME_HELP)] = None,
    constraint: Annotated[Text, option(metavar="FEATURES", help="Features that the nodes must have.")] = None,
    slurm_extra: Annotated[Words, option(metavar="OPTION", help=SLURM_EXTRA_HELP)] = None,
) -> None:
    """Submit a training script; its code is copied now, so later edits do not affect the job.

    rekindle submit --ranks 2 train.py --lr 0.1

    Options of rekindle come first; arguments after SCRIPT are passed to it. With --module or --recipe, put -- before
    arguments that start with a dash. A command of torchrun or python in place of SCRIPT is translated.
    """
    if module is None and recipe is None:
        command, module, env = _translated(context, command or [], env or [])
    if parallel is not None and array is None:
        raise typer.BadParameter(f"--parallel {parallel} limits the jobs of an array: pass --array, too")
    kind, target, args = target_and_args(command or [], module, recipe)
    for each in misplaced_options(args):
        note(f"{each} is passed to {sanitize_line(target)}: rekindle's own options come before it")
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
        if array is not None:
            raise typer.Exit(submit_array(client, fields, array, parallel, output, follow=follow))
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
    name = fields.pop("name", None) or Path(fields.get("script") or fields.get("module") or fields["recipe"]).stem
    found = client.submit_experiment({"name": name, "array": array, "base": fields, **drop_unset(parallel=parallel)})
    return finish_experiment(client, found, output, follow=follow)


def _print_submitted(job: Job, output: Output) -> None:
    sentence = f"{sanitize_line(job['name'])} is job {job['number']} ({job['id']}), {sanitize_line(job['state'])}"
    print_job(job, output, formatting.join([sentence, formatting.status_line(job)], ": "))
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


def split_arguments(texts: list[str]) -> list[str]:
    """The words of every ``--on-restart``, as a shell would pass them."""
    words: list[str] = []
    for text in texts:
        try:
            words += shlex.split(text)
        except ValueError as error:
            raise typer.BadParameter(f"--on-restart {text!r}: {error}") from None
    return words


_OTHER_PARAMETERS = frozenset(
    {"command", "module", "recipe", "code", "git", "ref", "env", "array", "parallel", "follow", "output"}
)
_CONVERTED_PARAMETERS = frozenset({"after", "after_any", "continue_from", "on_restart", "exclude", "nproc_per_node"})
_POLICY_FIELDS = SnapshotPolicy().to_json().keys()
_SLURM_FIELDS = {
    "partition": "partition", "account": "account", "qos": "qos", "slurm_time": "time", "constraint": "constraint",
    "slurm_extra": "extra",
}  # fmt: skip


def job_fields(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the request body that options set one to one; ``parameters`` are those of the command line."""
    fields = {
        name: value for name, value in parameters.items() if name not in _OTHER_PARAMETERS | _CONVERTED_PARAMETERS
    }
    policy = {name: fields.pop(name) for name in _POLICY_FIELDS if name in fields}
    on_slurm = fields.pop("slurm", False)
    slurm = drop_unset(**{field: fields.pop(name, None) or None for name, field in _SLURM_FIELDS.items()})
    fields = drop_unset(**fields, snapshot=drop_unset(**policy))
    return {**fields, "slurm": slurm} if slurm or on_slurm else fields


def target_and_args(command: list[str], module: str | None, recipe: str | None) -> tuple[str, str, list[str]]:
    """What to run, as (kind, target, arguments): the first word is the script unless an option names the target."""
    if module is not None and recipe is not None:
        raise typer.BadParameter(f"--module {module} and --recipe {recipe} exclude each other")
    if module is not None:
        return "module", module, command
    if recipe is not None:
        return "recipe", recipe, command
    if not command:
        raise typer.BadParameter("name a script, as in `rekindle submit train.py`, or pass --module or --recipe")
    return "script", command[0], command[1:]


def misplaced_options(args: list[str]) -> list[str]:
    """Options of `rekindle submit` among the arguments of a script, which hardly ever has such options."""
    return [option for option in _OWN_OPTIONS if any(arg.partition("=")[0] == option for arg in args)]


def environment(assignments: list[str], own: Mapping[str, str]) -> dict[str, str]:
    """``K=V`` sets a variable, ``K`` alone copies its value from ``own``, the environment of this command."""
    variables = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals and name not in own:
            raise typer.BadParameter(f"--env {name}: not set in this shell; pass --env {name}=VALUE")
        variables[name] = value if equals else own[name]
    return variables
