"""Records read back from JSON that nobody vouches for: a script may write wherever its rank does."""

from enum import StrEnum
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from rekindle.contract.files import read_json

T = TypeVar("T")

_RENAMED_SINCE_0_1 = {"durable_step": "snapshot_step", "snapshot_cadence": "snapshot_policy"}
_HINTS: dict[type[Any], dict[str, Any]] = {}
_BIGGEST_INT = 1 << 63
_BIGGEST_FLOAT = 1e300


def read_record(path: Path, cls: type[T]) -> T | None:
    """The record at ``path``, or None where there is none or something else than a record."""
    try:
        return structure(cls, read_json(path))
    except ValueError:
        return None


def structure(cls: type[T], value: Any) -> T:
    """The JSON object ``value`` as the dataclass ``cls``, whose fields are plain values or None.

    Raises ValueError where it is no object, a field is missing or has another type than ``cls`` says.
    """
    hints = _hints(cls)
    try:
        return cls(**{name: _coerce(item, hints[name], name) for name, item in known_fields(cls, value).items()})
    except TypeError as error:
        raise ValueError(f"not a {cls.__name__}: {error}") from error


def known_fields(cls: type[Any], value: Any) -> dict[str, Any]:
    """The fields of ``value`` that ``cls`` has: a newer version may have written more. TypeError for no object."""
    if not isinstance(value, dict):
        raise TypeError(f"a JSON object is needed, not {type(value).__name__}")
    hints = _hints(cls)
    return {name: item for name, item in with_current_names(value).items() if name in hints}


def with_current_names(value: dict[str, Any]) -> dict[str, Any]:
    """``value`` with the fields of a record that version 0.1.0 wrote called as they are now."""
    return {_RENAMED_SINCE_0_1.get(name, name): item for name, item in value.items()}


def _hints(cls: type[Any]) -> dict[str, Any]:
    """Found once per class: a keeper reads the status of every rank each second."""
    if cls not in _HINTS:
        _HINTS[cls] = get_type_hints(cls)
    return _HINTS[cls]


def _coerce(value: Any, hint: Any, name: str) -> Any:
    for kind in get_args(hint) or (hint,):
        if issubclass(kind, StrEnum) and isinstance(value, str):
            return kind(value)
        if _fits(value, kind):
            return value
    raise ValueError(f"{name} must be {hint}, not {type(value).__name__}")


def _fits(value: Any, kind: type) -> bool:
    """Numbers must be finite and of a size that everything can handle; a bool is no number."""
    if kind is int:
        return type(value) is int and abs(value) < _BIGGEST_INT
    if kind is float:
        return type(value) in (int, float) and abs(value) < _BIGGEST_FLOAT
    return isinstance(value, NoneType if kind is NoneType else kind)
