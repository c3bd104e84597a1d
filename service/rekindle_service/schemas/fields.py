"""Types of the fields of requests and responses, with the rules that do not depend on this machine."""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, StringConstraints
from pydantic_core import PydanticCustomError

from rekindle.contract.field_texts import describe
from rekindle.contract.run_dir.json_records import bounded_json
from rekindle.contract.run_dir.snapshot_dir import metric_of

T = TypeVar("T")
U = TypeVar("U")


class ApiModel(BaseModel):
    """Base of all models: the text below a field is its description in the OpenAPI document.

    Responses are also read from the attributes of a row or a record.
    """

    model_config = ConfigDict(json_schema_extra=describe, from_attributes=True)


class Page(ApiModel, Generic[T]):
    """Page of results. Pagination: send `next` as the query parameter `cursor` to get the page that follows."""

    items: list[T]
    """Results of this page."""
    next: str | None = None
    """Cursor of the next page; null on the last page."""

    def map(self, convert: Callable[[T], U]) -> "Page[U]":
        return Page(items=[convert(item) for item in self.items], next=self.next)


def as_datetime(seconds: float) -> datetime | None:
    """Seconds since the epoch in UTC; None for what no calendar contains (jobs write times, too)."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def replace_surrogates(value: Any) -> Any:
    """``value`` with unpaired surrogates in all its strings replaced: JSON files may hold some, UTF-8 cannot."""
    match value:
        case str():
            return value if value.isascii() else value.encode(errors="replace").decode()
        case dict():
            return {replace_surrogates(key): replace_surrogates(item) for key, item in value.items()}
        case list():
            return [replace_surrogates(item) for item in value]
        case _:
            return value


if TYPE_CHECKING:
    Timestamp = float | int
else:
    Timestamp = Annotated[float, PlainSerializer(as_datetime, return_type=datetime | None)]
"""Seconds since the epoch, in JSON an ISO 8601 date and time in UTC.

To mypy it is a union, by which ``Json`` knows it: an alias of a class alone has no name there.
"""

Utf8Str = Annotated[str, BeforeValidator(replace_surrogates)]
"""Text from a job's files."""

MetricPoint = tuple[int, int | None, float, float | None]
"""Step, epoch, seconds since the epoch, value (null where it is not finite)."""

JsonObject = Annotated[dict[str, Any], BeforeValidator(bounded_json)]
"""A JSON object from a job's files."""

OutcomeJson = Annotated[dict[str, Any], BeforeValidator(bounded_json)]
"""The JSON of ``contract.outcome.Outcome``."""


MAX_NAME_LENGTH = 200
_MAX_FILE_NAME_LENGTH = 255  # bytes
_SLOTS = re.compile(r"cuda:\d{1,4}(,cuda:\d{1,4})*|cpu:\d{1,4}(,cpu:\d{1,4})*", re.ASCII)


def no_nul(text: str) -> str:
    if "\0" in text:
        raise PydanticCustomError(
            "nul", "must not contain a NUL character", {"hint": "command lines cannot contain one"}
        )
    return text


def printable(text: str) -> str:
    if not text.isprintable() or not text.strip():
        rule = "must contain a visible character and no control characters"
        raise PydanticCustomError("unprintable", rule, {"hint": "line breaks are control characters"})
    return text


def _path(text: str) -> str:
    if any(len(part.encode()) > _MAX_FILE_NAME_LENGTH for part in no_nul(text).split("/")):
        raise PydanticCustomError("path", "must be a path with file names of at most 255 bytes", {"hint": ""})
    return text


def _metric(text: str) -> str:
    try:
        metric_of(printable(text))
    except ValueError as error:
        hint = "prefix the name with - where lower is better, as in -loss"
        raise PydanticCustomError("metric", "must be the name of a logged metric", {"hint": hint}) from error
    return text


_GPU_WORDS = ("gpu", "gpus", "nvidia")


def _device(text: str) -> str:
    names = text.split(",")
    if text not in ("auto", "cpu", "cuda") and not (_SLOTS.fullmatch(text) and len(set(names)) == len(names)):
        rule = "must be 'auto', 'cpu' or 'cuda', or different slots of one kind, such as cuda:5,cuda:6"
        meant = "did you mean 'cuda'?" if text.lower() in _GPU_WORDS else None
        raise PydanticCustomError("device", rule, {"hint": meant} if meant else None)
    return text


def _text(pattern: str, rule: str, hint: str) -> AfterValidator:
    """Check a text that is handed to another program, ``sbatch``."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise PydanticCustomError("text", rule, {"hint": hint})
        return text

    return AfterValidator(check)


_MEMORY = _text(
    r"\d{1,12}[KMGTkmgt]?", "must be a whole number and a unit, K, M, G or T", "such as 32G; 0 is all that nodes have"
)
_GRES = _text(
    r"[A-Za-z]\w*(:\w[\w.-]*)*(,[A-Za-z]\w*(:\w[\w.-]*)*)*",
    "must be names, each with a type and a number if need be, as for sbatch",
    "such as gpu:4 or gpu:a100:4",
)
_GPUS = _text(
    r"(\w[\w.-]*:)?[1-9]\d{0,3}",
    "must be a number of GPUs, after their type if need be",
    "such as 4 or a100:4",
)

Device = Annotated[str, StringConstraints(max_length=10_000), AfterValidator(_device)]
Argument = Annotated[str, AfterValidator(no_nul)]
Name = Annotated[str, StringConstraints(max_length=MAX_NAME_LENGTH), AfterValidator(printable)]
PathText = Annotated[str, StringConstraints(min_length=1, max_length=1024), AfterValidator(_path)]
VariableName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=MAX_NAME_LENGTH)]
Monitor = Annotated[str, StringConstraints(max_length=MAX_NAME_LENGTH), AfterValidator(_metric)]
SlurmWord = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(printable)]
SlurmMemory = Annotated[str, _MEMORY]
SlurmResources = Annotated[str, StringConstraints(max_length=200), _GRES]
SlurmGpus = Annotated[str, StringConstraints(max_length=200), _GPUS]
ShellLine = Annotated[str, StringConstraints(max_length=1000), AfterValidator(printable)]
JobTag = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$", max_length=40)]
Tags = Annotated[list[JobTag], Field(max_length=20), AfterValidator(lambda tags: sorted(set(tags)))]
Note = Annotated[str, StringConstraints(max_length=2000), AfterValidator(no_nul)]


STRICT = ConfigDict(extra="forbid", strict=True, from_attributes=False)
"""Of request bodies: unknown fields are invalid, and values of another type, such as a number as text."""


class RequestModel(ApiModel):
    """Base of the bodies of requests."""

    model_config = STRICT


def require_one(model: BaseModel, names: tuple[str, ...], hint: str) -> None:
    given = [name for name in names if getattr(model, name) is not None]
    if len(given) != 1:
        *first, last = names
        rule = f"exactly one of {', '.join(first)} and {last} must be given, not {{given}}"
        raise PydanticCustomError("one_of", rule, {"given": " and ".join(given) or "none", "hint": hint})


def range_from_number(value: Any, maximum: int, meaning: str) -> Any:
    """``2`` means ``{"min": 2, "max": 2}``."""
    if isinstance(value, dict | BaseModel):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
        raise PydanticCustomError(
            "range",
            'must be a whole number from 1 to {max}, or an object with "min" and "max"',
            {"max": maximum, "hint": f"it is the number of {meaning}"},
        )
    return {"min": value, "max": value}
