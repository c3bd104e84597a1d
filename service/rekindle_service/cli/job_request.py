"""The request that submits a job, from the words after `rekindle submit`."""

import shlex
from collections.abc import Mapping
from itertools import islice
from typing import Any

import typer

from rekindle.contract.job import SnapshotPolicy
from rekindle_service.client.api_connection import drop_unset
from rekindle_service.sanitize import sanitize_line

_OWN_FLAGS = frozenset({"--follow", "--hold"})
OWN_OPTIONS = _OWN_FLAGS | {
    *("--ranks", "--after", "--after-any", "--max-failures", "--hang-timeout", "--on-restart"),
    *("--devices-per-rank", "--gpu-share", "--nproc_per_node", "--nproc-per-node"),
}
"""That scripts hardly ever have."""
_OTHER_PARAMETERS = frozenset(
    {"command", "module", "recipe", "code", "git", "ref", "env", "array", "parallel", "follow", "dry_run", "output"}
)
_CONVERTED_PARAMETERS = frozenset({"after", "after_any", "continue_from", "on_restart", "exclude", "nproc_per_node"})
_POLICY_FIELDS = SnapshotPolicy().to_json().keys()
_SLURM_FIELDS = {
    "partition": "partition", "account": "account", "qos": "qos", "slurm_time": "time", "constraint": "constraint",
    "slurm_mem": "mem", "gres": "gres", "gpus_per_node": "gpus_per_node", "slurm_prologue": "prologue",
    "slurm_extra": "extra",
}  # fmt: skip


def split_arguments(texts: list[str]) -> list[str]:
    """The words of every ``--on-restart``, as a shell would pass them."""
    words: list[str] = []
    for text in texts:
        try:
            words += shlex.split(text)
        except ValueError as error:
            raise typer.BadParameter(f"--on-restart {text!r}: {error}") from None
    return words


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


def require_order(before: list[str], args: list[str]) -> list[str]:
    """A script's arguments without a leading ``--``, which says that all that follows is for the script.

    ``before``: the words before ``args``. Raises BadParameter for options of `rekindle submit` among the arguments.
    """
    if "--" in before:
        return args
    if args[:1] == ["--"]:
        return args[1:]
    misplaced, rest = split_misplaced(args)
    if misplaced:
        right = shlex.join(["rekindle", "submit", *misplaced, *before, *rest])
        other = shlex.join(["rekindle", "submit", *before, "--", *args])
        names = [name for word in misplaced if (name := word.partition("=")[0]) in OWN_OPTIONS]
        raise typer.BadParameter(
            f"options of rekindle come before the script: {', '.join(names)}. Write `{sanitize_line(right)}`; "
            f"if the script itself has such options, `{sanitize_line(other)}`"
        )
    return args


def split_misplaced(args: list[str]) -> tuple[list[str], list[str]]:
    """Options of `rekindle submit` with their values among a script's arguments up to a ``--``, and all others."""
    misplaced, rest = [], []
    words = iter(args)
    for word in words:
        name, equals, _ = word.partition("=")
        if word == "--":
            rest += [word, *words]
        elif name not in OWN_OPTIONS:
            rest.append(word)
        else:
            misplaced += [word, *([] if equals or name in _OWN_FLAGS else islice(words, 1))]
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
