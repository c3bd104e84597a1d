"""The trials of an experiment, of a matrix of parameters or of an array, and request and command of each. Pure."""

import itertools
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rekindle.contract.job_options import JobOption, Widget, job_options

MAX_JOBS = 200
MAX_ARRAY = 10_000
INDEX = "index"
"""The parameter that a trial of an array has."""

JOB_FIELDS = ("recipe", "script", "module", *(each.name for each in job_options() if each.varies))
"""Fields of a job that a matrix may vary. A key with a leading dash, or ``key=``, is an option of the script."""

Value = str | int | float | bool | None
Parameters = dict[str, Value]
Matrix = Mapping[str, Sequence[Value]]

_LARGEST = 2**31 - 1
_PART = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?")
_PLACEHOLDER = re.compile(r"(?<![{$])\{index\}(?!\})")


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
    return key.startswith("-") or key.endswith("=")


def label(parameters: Mapping[str, Value]) -> str:
    """``ranks=2 --lr=0.1 --no-shuffle=yes``."""
    return " ".join(f"{shown_key(key)}={format_value(value)}" for key, value in parameters.items())


def shown_key(key: str) -> str:
    """The name of a parameter for people: ``lr`` for ``lr=``."""
    return key.removesuffix("=")


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
            yield from (f"{key}{value}",) if key.endswith("=") else (key,) if value is True else (key, str(value))


def submit_command(request: Mapping[str, Any]) -> str:
    """The command for the body of ``POST /jobs``; of variables it has only the names."""
    code = request.get("code") or {}
    words = [word for flag in ("path", "git", "ref") if flag in code for word in (_CODE_FLAGS[flag], code[flag])]
    for option in job_options():
        section = request.get(option.section) or {} if option.section else request
        if not option.is_argument and option.path != "slurm":
            words += _option_words(option, section.get(option.name))
    kind = next(kind for kind in ("script", "module", "recipe") if request.get(kind))
    target = [request[kind]] if kind == "script" else [f"--{kind}", request[kind]]
    args = list(request.get("args", []))
    return shlex.join(["rekindle", "submit", *words, *target, *(["--", *args] if args and kind != "script" else args)])


_CODE_FLAGS = {"path": "--code", "git": "--git", "ref": "--ref"}


def _option_words(option: JobOption, value: Any) -> list[str]:
    if value is None or value in ([], {}) or value == option.default:
        return []
    match option.widget:
        case Widget.TICK:
            return [option.flag.split("/")[0 if value else -1]]
        case Widget.VARIABLES:
            return [word for name in value for word in (option.flag, name)]
        case Widget.LINES | Widget.JOBS if isinstance(value, list):
            return [word for each in value for word in (option.flag, str(each))]
        case Widget.RANGE if isinstance(value, dict):
            return [option.flag, f"{value.get('min', 1)}:{value.get('max', '')}"]
        case Widget.WORDS:
            return [option.flag, shlex.join(value)]
    return [option.flag, str(value)]


@dataclass(frozen=True, slots=True)
class Array:
    """``parallel``: most of the jobs that hold slots at once; None is no limit."""

    indices: list[int]
    parallel: int | None


def parse_array(text: str) -> Array:
    """``0-9``, ``0-9%2`` (two at a time), ``1,3,10-30:5`` (steps of 5). Raises ValueError: what is wrong."""
    listed, percent, most = text.replace(" ", "").partition("%")
    if percent and not (most.isdecimal() and len(most) <= 5 and int(most) > 0):
        raise ValueError("must have a number above 0 after %: how many run at once, as in 0-9%2")
    ranges = [_range(part) for part in listed.split(",")]
    if sum(map(len, ranges)) > MAX_ARRAY:
        raise ValueError(f"must have at most {MAX_ARRAY} indices, and has {sum(map(len, ranges))}")
    indices = [index for each in ranges for index in each]
    if len(set(indices)) < len(indices):
        raise ValueError("must not name an index twice")
    return Array(indices, int(most) if percent else None)


def _range(part: str) -> range:
    match = _PART.fullmatch(part)
    if match is None:
        raise ValueError("must be indices and ranges, as in 0-9, 1,3,10-30:5 or 0-99%4")
    first, last, step = (None if each is None else int(each) for each in match.groups())
    last = first if last is None else last
    if first is None or last is None or last > _LARGEST or first > last or step == 0:
        raise ValueError(f"has a range that is empty or exceeds {_LARGEST}: {part}")
    return range(first, last + 1, step or 1)


def array_trials(array: Array) -> list[Trial]:
    return [Trial({INDEX: index}, 0) for index in array.indices]


def index_of(parameters: Parameters) -> int | None:
    """The index of a trial; None where it is not one of an array."""
    index = parameters.get(INDEX)
    return index if isinstance(index, int) else None


def with_index(request: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The body of ``POST /jobs`` with ``{index}`` in its arguments replaced; ``{{index}}`` stays a text."""
    filled = {
        name: [_PLACEHOLDER.sub(str(index), each) if isinstance(each, str) else each for each in request[name]]
        for name in ("args", "on_restart")
        if isinstance(request.get(name), list)
    }
    return {**request, **filled}
