"""Dataclasses read from JSON that nobody vouches for: a script can write wherever its rank can."""

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from rekindle.contract.files import read_json

T = TypeVar("T")
_Reader = Callable[[Any], Any]
_READERS: dict[type[Any], dict[str, _Reader]] = {}

_FIELDS_OF_0_1 = {"durable_step": "snapshot_step", "snapshot_cadence": "snapshot_policy", "set_aside": "quarantined"}
_RECORD_TYPES_OF_0_1 = {"rewound": "rolled_back"}
_MAX_BYTES = 1 << 20  # of a record
_INT_BOUND = 1 << 63
_FLOAT_BOUND = 1e300


@dataclass(frozen=True, slots=True)
class Range:
    """Annotates a number with the values that it may have, both ends included."""

    low: float
    high: float


Count = Annotated[int, Range(0, 1 << 53)]
"""What a database and JavaScript can hold."""

Amount = Annotated[float, Range(0, 1e15)]


def read_record(path: Path, cls: type[T], root: Path | None = None) -> T | None:
    """The record at ``path``, or None where there is none or something else than a record; ``root``: see read_json."""
    try:
        return structure(cls, read_json(path, root=root, max_bytes=_MAX_BYTES))
    except ValueError:
        return None


def structure(cls: type[T], value: Any) -> T:
    """The JSON object ``value`` as the dataclass ``cls``. Fields that ``cls`` does not have are ignored.

    Numbers are finite and of bounded size, text is free of half surrogate pairs, which no file or database takes.
    Raises ValueError where ``value`` is no object, a field is missing or has another type than ``cls`` says.
    """
    readers = _field_readers(cls)
    try:
        known = known_fields(cls, value)
        return cls(**{name: _read_field(name, readers[name], item) for name, item in known.items()})
    except (TypeError, RecursionError) as error:
        raise ValueError(f"not a {cls.__name__}: {error}") from error


def known_fields(cls: type[Any], value: Any) -> dict[str, Any]:
    """The fields of ``value`` that ``cls`` has: a newer version may have written more. TypeError for no object."""
    if not isinstance(value, dict):
        raise TypeError(f"a JSON object is needed, not {type(value).__name__}")
    names = _field_readers(cls)
    return {name: item for name, item in with_current_names(value).items() if name in names}


def with_current_names(value: dict[str, Any]) -> dict[str, Any]:
    """``value`` with the names that it would have today: the only place that knows what version 0.1.0 wrote."""
    current = {_FIELDS_OF_0_1.get(name, name): item for name, item in value.items()}
    if isinstance(kind := current.get("type"), str):
        current["type"] = _RECORD_TYPES_OF_0_1.get(kind, kind)
    return current


def _read_field(name: str, reader: _Reader, value: Any) -> Any:
    try:
        return reader(value)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise ValueError(f"{name}: {error}") from error


def _field_readers(cls: type[Any]) -> dict[str, _Reader]:
    """By field; made once per class, since records are read many times a second."""
    if cls not in _READERS:
        hints = get_type_hints(cls, include_extras=True)
        _READERS[cls] = {field.name: _reader(hints[field.name]) for field in fields(cls)}
    return _READERS[cls]


def _reader(hint: Any) -> _Reader:
    """A function that returns a JSON value as ``hint`` says, and raises ValueError for any other value."""
    arguments = get_args(hint)
    match get_origin(hint):
        case None:
            return _plain_reader(hint)
        case origin if origin is Annotated:
            return _within(_reader(arguments[0]), arguments[1])
        case origin if origin is list:
            return _list_of(_reader(arguments[0]))
        case origin if origin is dict:
            return _dict_of(_reader(arguments[1]))
        case _:
            return _optional(_reader(arguments[0]))  # ``X | None``: the contract has no other union


def _plain_reader(hint: Any) -> _Reader:
    if hint is Any:
        return _any
    if isinstance(hint, type) and is_dataclass(hint):
        return getattr(hint, "from_json", partial(structure, hint))
    if issubclass(hint, StrEnum):
        return lambda value: hint(_text(value))
    return {int: _whole_number, float: _number, str: _text, bool: _truth}[hint]


def _optional(reader: _Reader) -> _Reader:
    return lambda value: None if value is None else reader(value)


def _within(reader: _Reader, bounds: Range) -> _Reader:
    def read(value: Any) -> Any:
        number = reader(value)
        if not bounds.low <= number <= bounds.high:
            raise ValueError(f"{number} is not between {bounds.low} and {bounds.high}")
        return number

    return read


def _list_of(reader: _Reader) -> _Reader:
    def read(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _wrong("a list", value)
        return [reader(item) for item in value]

    return read


def _dict_of(reader: _Reader) -> _Reader:
    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _wrong("an object", value)
        return {_text(key): reader(item) for key, item in value.items()}

    return read


def _whole_number(value: Any) -> int:
    if type(value) is not int or abs(value) >= _INT_BOUND:  # a bool is no number
        raise _wrong("a whole number of at most 63 bits", value)
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) < _FLOAT_BOUND:
        raise _wrong("a finite number", value)
    return float(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong("text", value)
    return value.encode(errors="replace").decode()


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _wrong("true or false", value)
    return value


def _any(value: Any) -> Any:
    """``value`` with null for every number that JSON has no form for, or that is too large."""
    match value:
        case str():
            return _text(value)
        case list():
            return [_any(item) for item in value]
        case dict():
            return {_text(key): _any(item) for key, item in value.items()}
        case int() | float() if not abs(value) < _FLOAT_BOUND:
            return None
        case _:
            return value


def _wrong(needed: str, value: Any) -> ValueError:
    return ValueError(f"{needed} is needed, not {type(value).__name__}")
