"""Arrays: the same job many times, each with an index of its own. Pure."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rekindle_service.experiments.matrix import Parameters, Trial

MAX_ARRAY = 10_000
INDEX = "index"
"""The parameter that a trial of an array has."""

_LARGEST = 2**31 - 1
_PART = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?")
_PLACEHOLDER = re.compile(r"(?<![{$])\{index\}(?!\})")


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
