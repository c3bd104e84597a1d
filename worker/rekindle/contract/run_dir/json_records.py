"""Dataclasses read from JSON that nobody vouches for: a script can write wherever its rank can."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar, cast, get_args, get_origin, get_type_hints

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

    def check(self, value: float) -> float:
        if not self.low <= value <= self.high:
            raise ValueError(f"{value} is not between {self.low} and {self.high}")
        return value


Count = Annotated[int, Range(0, 1 << 53)]
"""What a database and JavaScript can hold."""

Amount = Annotated[float, Range(0, 1e15)]


class JsonRecord:
    """Base of the dataclasses that are one JSON document or one line of a file."""

    __slots__ = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(cast("Any", self))

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Raises ValueError where ``value`` is not what ``to_json`` makes."""
        return structure(cls, value)


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
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is None:
        return _SCALARS[hint] if hint in _SCALARS else _class_reader(hint)
    if origin is dict:
        item = _reader(arguments[1])
        return lambda value: {_text(key): item(each) for key, each in _require(dict, value).items()}
    item = _reader(arguments[0])
    if origin is list:
        return lambda value: [item(each) for each in _require(list, value)]
    if origin is Annotated:
        return lambda value: arguments[1].check(item(value))
    return lambda value: None if value is None else item(value)  # ``X | None``: the contract has no other union


def _class_reader(cls: type[Any]) -> _Reader:
    if issubclass(cls, StrEnum):
        return lambda value: cls(_text(value))
    reader: _Reader = getattr(cls, "from_json", partial(structure, cls))
    return reader


def _require(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{_NAMES[kind]} is needed, not {type(value).__name__}")
    return value


def _whole_number(value: Any) -> int:
    if isinstance(value, bool) or abs(_require(int, value)) >= _INT_BOUND:
        raise ValueError("a whole number of at most 63 bits is needed")
    return int(value)


def _number(value: Any) -> float:
    if isinstance(value, bool) or not abs(value if isinstance(value, int) else _require(float, value)) < _FLOAT_BOUND:
        raise ValueError("a finite number is needed")
    return float(value)


def _text(value: Any) -> str:
    return _require(str, value).encode(errors="replace").decode()


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


_NAMES = {dict: "an object", list: "a list", int: "a whole number", float: "a number", str: "text", bool: "a boolean"}
_SCALARS: dict[Any, _Reader] = {
    int: _whole_number, float: _number, str: _text, bool: partial(_require, bool), Any: _any,
}  # fmt: skip
