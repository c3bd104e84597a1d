"""From the definition of an experiment to its trials, and from a trial to the request for its job. Pure."""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MAX_JOBS = 200

JOB_FIELDS = ("ranks", "recipe", "script", "module", "device", "devices_per_rank", "launch", "links", "python", "warm")
"""Fields of a job that a matrix may vary. A key that begins with a dash is an option of the script."""

Value = str | int | float | bool | None
Parameters = dict[str, Value]
Matrix = Mapping[str, Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Trial:
    """One job of an experiment; ``repeat`` counts from 0."""

    parameters: Parameters
    repeat: int


def count(matrices: Sequence[Matrix], repeats: int) -> int:
    """How many trials ``expand`` would return."""
    return repeats * sum(math.prod(map(len, matrix.values())) for matrix in matrices)


def expand(matrices: Sequence[Matrix], repeats: int) -> list[Trial]:
    """Every combination of the values of each matrix, one matrix after the other.

    All combinations come once before any is repeated, so that a changing load of the machine affects all alike.
    """
    once = [
        dict(zip(matrix, values, strict=True)) for matrix in matrices for values in itertools.product(*matrix.values())
    ]
    return [Trial(parameters, repeat) for repeat in range(repeats) for parameters in once]


def job_request(
    base: Mapping[str, Any], args: Sequence[str], trial: Trial, *, name: str, seed_option: str | None
) -> dict[str, Any]:
    """The body of ``POST /jobs`` for a trial, whose own arguments come last and so override others."""
    fields = {key: value for key, value in trial.parameters.items() if not is_option(key)}
    seed = [] if seed_option is None else [seed_option, str(trial.repeat)]
    all_args = [*base.get("args", []), *args, *seed, *_options(trial.parameters)]
    return {**base, **fields, "args": all_args, "name": name}


def is_option(key: str) -> bool:
    return key.startswith("-")


def label(parameters: Mapping[str, Value]) -> str:
    """``ranks=2 --lr=0.1 --no-shuffle=yes``."""
    return " ".join(f"{key}={format_value(value)}" for key, value in parameters.items())


def format_value(value: Value) -> str:
    match value:
        case True:
            return "yes"
        case False:
            return "no"
        case None:
            return "not set"
        case _:
            return str(value)


def _options(parameters: Mapping[str, Value]) -> Iterator[str]:
    """True gives an option without a value; False and None omit it."""
    for key, value in parameters.items():
        if is_option(key) and value is not False and value is not None:
            yield from (key,) if value is True else (key, str(value))
