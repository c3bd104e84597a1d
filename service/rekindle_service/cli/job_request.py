"""The request that submits a job, from the words after `rekindle submit`."""

import inspect
import os
import re
import shlex
from collections.abc import Callable, Collection, Mapping
from itertools import islice
from typing import Annotated, Any

import typer

from rekindle.contract.job_options import JobOption, Widget, job_options
from rekindle_service.cli.job_interpreter import interpreter
from rekindle_service.client import Client

SECONDS = "SECONDS"
"""Metavariable of the options that are a time."""

_SCALES = (86400, 3600, 60, 1)
_DURATION = re.compile("".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in ("d", "h", "m(?:in)?", "s?")))
_GPUS_HELP = "GPUs, each with a rank: short for --device cuda --ranks N. (default: as --ranks and --device say)"

OWN_FLAGS = {"--follow", *(each.flag for each in job_options() if each.only_ours and each.widget is Widget.TICK)}
OWN_OPTIONS = {"--nproc_per_node", "--nproc-per-node", *OWN_FLAGS, *(o.flag for o in job_options() if o.only_ours)}
"""Options that scripts hardly ever have."""


def with_job_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add a parameter for every option of a job to a command that takes ``**options``."""
    signature = inspect.signature(command)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    options = [_parameter(each) for each in job_options() if not each.is_argument]
    gpus = Annotated[int | None, typer.Option("--gpus", min=1, metavar="N", help=_GPUS_HELP)]
    short = inspect.Parameter("gpus", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=gpus)
    vars(command)["__signature__"] = signature.replace(parameters=[*own, short, *options])
    return command


def _parameter(option: JobOption) -> inspect.Parameter:
    repeated = isinstance(option.default, list | dict)
    default = f"(default: {option.without})" if option.without else ""
    found = typer.Option(
        option.flag,
        rich_help_panel=None if option.common else option.group,
        metavar=option.metavar or "|".join(option.choices) or None,
        help=" ".join(filter(None, (option.help, option.in_shell, "Repeatable." if repeated else "", default))),
        parser=_parser(option),
    )
    is_text = option.widget not in (Widget.NUMBER, Widget.TICK)
    kind = list[str] if repeated else str if is_text or option.metavar == SECONDS else option.kind
    by_name = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(option.parameter, by_name, default=None, annotation=Annotated[kind | None, found])


def parse_ranks(text: str) -> int | dict[str, int]:
    """``2`` or ``1:4``."""
    low, colon, high = text.partition(":")
    try:
        return {"min": int(low), "max": int(high)} if colon else int(low)
    except ValueError:
        raise typer.BadParameter(f"must be a number or MIN:MAX, as in 2 or 1:4, not {text!r}") from None


def parse_seconds(text: str) -> float:
    """``90``, ``45s``, ``30m``, ``2h``, ``1.5d`` or ``1h30m``."""
    parts = _DURATION.fullmatch(text.strip().lower())
    if parts is None or not text.strip():
        raise typer.BadParameter(f"must be seconds, or a time as in 90, 30m, 2h or 1d, not {text!r}")
    return sum(float(number) * scale for number, scale in zip(parts.groups(default="0"), _SCALES, strict=True))


def _parser(option: JobOption) -> Callable[[str], Any] | None:
    if option.metavar == SECONDS:
        return parse_seconds
    if option.widget is Widget.RANGE:
        return parse_ranks
    return interpreter if option.name == "python" else None


def job_fields(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the request that options set; ``parameters`` are those of the command line."""
    fields: dict[str, Any] = {}
    parameters = {**parameters, **_gpus(parameters)}
    for option in job_options():
        value = parameters.get(option.parameter)
        if value in (None, [], ()):
            continue
        if option.widget is Widget.WORDS:
            value = split_arguments(value)
        elif option.widget is Widget.VARIABLES:
            value = environment(value, os.environ)
        elif option.path == "slurm":
            value = {}  # an empty object is a request, too
        section = fields.setdefault(option.section, {}) if option.section else fields
        section[option.name] = value
    return fields


def _gpus(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The options that ``--gpus`` stands for. Raises BadParameter where one of them is given and says otherwise."""
    if (gpus := parameters.get("gpus")) is None:
        return {}
    meant = {"ranks": gpus, "device": "cuda"}
    for name, value in meant.items():
        if parameters.get(name) not in (None, value):
            raise typer.BadParameter(f"--gpus {gpus} means --{name} {value}: pass it without --{name}, or both others")
    return meant


def with_job_ids(fields: dict[str, Any], client: Client) -> dict[str, Any]:
    """The fields with the ids of the jobs that they refer to."""
    for name in fields.keys() & {each.name for each in job_options() if each.metavar == "JOB"}:
        value = fields[name]
        many = isinstance(value, list)
        fields[name] = [client.find_job(each)["id"] for each in value] if many else client.find_job(value)["id"]
    return fields


def split_arguments(texts: list[str]) -> list[str]:
    """The words of every ``--on-restart``, as a shell would pass them."""
    words: list[str] = []
    for text in texts:
        try:
            words += shlex.split(text)
        except ValueError as error:
            raise typer.BadParameter(f"--on-restart {text!r}: {error}") from None
    return words


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


def require_order(
    before: list[str], args: list[str], command: str = "submit", further: Collection[str] = frozenset()
) -> list[str]:
    """A script's arguments without a leading ``--``, which says that all that follows is for the script.

    ``before``: the words before ``args``. Raises BadParameter for options of ``command`` among the arguments, which
    has ``further`` options that scripts hardly ever have.
    """
    if "--" in before:
        return args
    if args[:1] == ["--"]:
        return args[1:]
    misplaced, rest = split_misplaced(args, further)
    if misplaced:
        guard = len(before) - (command == "sweep")  # there a -- after the script ends what is varied
        right = shlex.join(["rekindle", command, *misplaced, *before, *rest])
        other = shlex.join(["rekindle", command, *before[:guard], "--", *before[guard:], *args])
        names = [name for word in misplaced if (name := word.partition("=")[0]) in OWN_OPTIONS | set(further)]
        raise typer.BadParameter(
            f"options of rekindle come before the script: {', '.join(names)}. Write `{right}`; "
            f"if the script itself has such options, `{other}`"
        )
    return args


def split_misplaced(args: list[str], further: Collection[str] = frozenset()) -> tuple[list[str], list[str]]:
    """Options of `rekindle submit` with their values among a script's arguments up to a ``--``, and all others."""
    misplaced, rest = [], []
    words = iter(args)
    for word in words:
        name, equals, _ = word.partition("=")
        if word == "--":
            rest += [word, *words]
        elif name not in OWN_OPTIONS and name not in further:
            rest.append(word)
        else:
            misplaced += [word, *([] if equals or name in OWN_FLAGS else islice(words, 1))]
    return misplaced, rest


def environment(assignments: list[str], own: Mapping[str, str]) -> dict[str, str]:
    """``K=V`` sets a variable, ``K`` alone copies its value from ``own``, the environment of this command."""
    variables = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals and name not in own:
            raise typer.BadParameter(f"--env {name}: not set in this shell; pass --env {name}=VALUE")
        variables[name] = value if equals else own[name]
    return variables
