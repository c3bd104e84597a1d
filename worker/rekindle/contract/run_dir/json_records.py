"""Dataclasses read from untrusted JSON: a script can write wherever its rank can."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, TypeVar, cast, get_args, get_origin, get_type_hints

from rekindle.contract.files import read_json

T = TypeVar("T")
_Reader = Callable[[Any], Any]

_MAX_BYTES = 1 << 20  # of a record
_INT_BOUND = 1 << 63
_FLOAT_BOUND = 1e300
_MAX_ITEMS = 1 << 16  # of a list
_MAX_DEPTH = 32  # of a value of any kind: what answers with it, or stores it, has limits of its own
_MAX_VALUES = 1 << 16  # within a value of any kind
_MAX_CHARACTERS = 1 << 20  # of all text within a value of any kind


@dataclass(frozen=True, slots=True)
class Range:
    """Annotates a number with the values that it may have, both ends included."""

    low: float
    high: float

    def check(self, value: float) -> float:
        if not self.low <= value <= self.high:
            raise ValueError(f"{value} is not between {self.low} and {self.high}")
        return value


@dataclass(frozen=True, slots=True)
class MaxLength:
    """Annotates text with the number of characters after which it is cut off: a record is not lost for its words."""

    characters: int

    def check(self, value: str) -> str:
        return value[: self.characters]


Line = Annotated[str, MaxLength(1000)]  # what a page shows in one line
PathText = Annotated[str, MaxLength(4096)]
Sentences = Annotated[str, MaxLength(20_000)]
Count = Annotated[int, Range(0, 1 << 53)]  # what a database and JavaScript can hold
Amount = Annotated[float, Range(0, 1e15)]


class JsonRecord:
    """Base of the dataclasses that are one JSON document or one line of a file."""

    __slots__ = ()
    keys: ClassVar[dict[str, str]] = {}  # by field, where its key is another

    def to_json(self) -> dict[str, Any]:
        return {self.keys.get(name, name): value for name, value in asdict(cast("Any", self)).items()}

    @classmethod
    def from_json(cls, value: Any) -> Self:
        """Read what ``to_json`` makes. Raises ValueError for anything else."""
        return structure(cls, value)


def shallow_json(record: JsonRecord) -> dict[str, Any]:
    """``to_json`` for a record whose fields are values, or lists and dictionaries of these, in a tenth of the time."""
    values = {key: getattr(record, name) for name, key in _keys(type(record))}  # type: ignore[arg-type]  # a class is hashable
    copied = {key: value.copy() for key, value in values.items() if isinstance(value, list | dict)}
    return {**values, **copied}


@cache
def _keys(cls: type[Any]) -> tuple[tuple[str, str], ...]:
    """Name and key of each field."""
    return tuple((each.name, cls.keys.get(each.name, each.name)) for each in fields(cls))


def read_record(path: Path, cls: type[T], root: Path | None = None) -> T | None:
    """The record at ``path``, or None where there is none or something else than a record; ``root``: see read_json."""
    value = read_json(path, root=root, max_bytes=_MAX_BYTES)
    try:
        return None if value is None else structure(cls, value)
    except ValueError:
        return None


def structure(cls: type[T], value: Any) -> T:
    """The JSON object ``value`` as the dataclass ``cls``.

    Keys that ``cls`` does not have are ignored: a keeper outlives the upgrade of its server, and the reverse.
    Numbers are finite and of bounded size, text is free of half surrogate pairs, which no file or database takes, and
    what may be any value is cut off where it is too large or too deep.
    Raises ValueError where ``value`` is no object, a field is missing or has another type than that of ``cls``.
    """
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object is needed, not {type(value).__name__}")  # noqa: TRY004 - a value, not a call
    known, name = {}, ""
    try:
        for name, (key, reader) in _field_readers(cls).items():  # type: ignore[arg-type]  # a class is hashable
            if key in value:
                known[name] = reader(value[key])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
        raise ValueError(f"{name}: {error}") from error
    try:
        return cls(**known)
    except TypeError as error:
        raise ValueError(f"not a {cls.__name__}: {error}") from error


@cache
def _field_readers(cls: type[Any]) -> dict[str, tuple[str, _Reader]]:
    """Key and reader by field; made once per class, since records are read many times a second."""
    hints, keys = get_type_hints(cls, include_extras=True), getattr(cls, "keys", {})
    return {each.name: (keys.get(each.name, each.name), _reader(hints[each.name])) for each in fields(cls)}


def _reader(hint: Any) -> _Reader:
    """A function that returns a JSON value of the type ``hint``, and raises ValueError for any other value."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in _SCALARS:
        return _SCALARS[hint]
    if origin is None:
        return (lambda value: hint(_text(value))) if issubclass(hint, StrEnum) else partial(structure, hint)
    if origin is dict:
        key_of, item = int if arguments[0] is int else _text, _reader(arguments[1])
        return lambda value: {key_of(key): item(each) for key, each in _require(dict, value).items()}
    item = _reader(arguments[0])
    if origin is list:
        return lambda value: [item(each) for each in _short(_require(list, value))]
    if origin is Annotated:
        return lambda value: arguments[1].check(item(value))
    return lambda value: None if value is None else item(value)  # ``X | None``: the contract has no other union


def _require(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{_NAMES[kind]} is needed, not {type(value).__name__}")
    return value


def _whole_number(value: Any) -> int:
    if type(value) is not int or not -_INT_BOUND < value < _INT_BOUND:
        raise ValueError("a whole number of at most 63 bits is needed")
    return value


def _number(value: Any) -> float:
    if type(value) not in (int, float) or not -_FLOAT_BOUND < value < _FLOAT_BOUND:
        raise ValueError("a finite number is needed")
    return float(value)


def _text(value: Any) -> str:
    return _require(str, value).encode(errors="replace").decode()


def _short(items: list[Any]) -> list[Any]:
    if len(items) > _MAX_ITEMS:
        raise ValueError(f"a list has at most {_MAX_ITEMS} items, this one has {len(items)}")
    return items


class _AnyValue:
    """Copies a value of any kind, without what is too much of it."""

    def __init__(self) -> None:
        self._values, self._characters = _MAX_VALUES, _MAX_CHARACTERS

    def copy(self, value: Any, depth: int = 0) -> Any:
        """Copy ``value`` with null for each part that is too deep, too large a number, or beyond the limits."""
        self._values -= 1
        if depth > _MAX_DEPTH or self._values < 0:
            return None
        match value:
            case str():
                return self._text(value)
            case list():
                return [self.copy(item, depth + 1) for item in value[: max(self._values, 0)]]
            case dict():
                items = islice(value.items(), max(self._values, 0))
                return {self._text(key): self.copy(item, depth + 1) for key, item in items}
            case int() | float() if not abs(value) < _FLOAT_BOUND:
                return None
            case _:
                return value

    def _text(self, value: str) -> str:
        text = _text(value)[: self._characters]
        self._characters -= len(text)
        return text


def bounded_json(value: Any) -> Any:
    """Copy a ``value`` that a job may have written, as far as answers and databases take it; null for the rest.

    Unpaired surrogates are replaced; lists and objects are at most 32 deep.
    """
    return _AnyValue().copy(value)


_NAMES = {dict: "an object", list: "a list", str: "text", bool: "a boolean"}
_SCALARS: dict[Any, _Reader] = {
    int: _whole_number, float: _number, str: _text, bool: partial(_require, bool), Any: bounded_json,
}  # fmt: skip
