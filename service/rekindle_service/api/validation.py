"""Pydantic's errors in the words of the contract: field, rule, value, hint."""

import json
import reprlib
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rekindle_service.suggestions import did_you_mean

_LONGEST_VALUE = 200  # characters of a wrong value that are shown back
_MOST_ERRORS = 20


def field_errors(errors: Sequence[Mapping[str, Any]], body: Any = None) -> list[dict[str, Any]]:
    """One entry per broken rule, at most 20; ``body`` is the type the body should have had."""
    return [_field_error(error, body) for error in errors[:_MOST_ERRORS]]


def _field_error(error: Mapping[str, Any], body: Any) -> dict[str, Any]:
    return {
        "field": _field_name(error["loc"]),
        "rule": _rule(error),
        "value": shown(error.get("input")),
        "hint": _hint(error, body),
    }


def _field_name(location: Sequence[int | str]) -> str:
    """``ranks.max`` for ``("body", "ranks", "max")``; the body itself is called ``body``."""
    parts = [str(part) for part in location if part != "[key]"]
    if parts[0] in ("body", "query", "path", "header", "cookie") and len(parts) > 1:
        parts = parts[1:]
    return ".".join(parts)


def _rule(error: Mapping[str, Any]) -> str:
    match error["type"]:
        case "extra_forbidden":
            return "there is no such field"
        case "missing":
            return "must be given"
        case "json_invalid":
            return f"must be JSON: {(error.get('ctx') or {}).get('error', 'not parsable')}"
        case "model_attributes_type":
            return "must be a JSON object, sent as application/json"
        case _:
            return str(error["msg"]).removeprefix("Value error, ").removeprefix("Input ")


def _hint(error: Mapping[str, Any], body: Any) -> str:
    *parents, name = error["loc"][1:] or [""]
    fields = _fields(body if error["loc"][0] == "body" else None, parents)
    if error["type"] == "extra_forbidden":
        return did_you_mean(str(name), list(fields))
    told = (error.get("ctx") or {}).get("hint")
    return str(told) if told is not None else _without(fields.get(str(name)))


def _without(field: FieldInfo | None) -> str:
    """What leaving out a field means, where it may be left out."""
    if field is None or field.is_required():
        return ""
    default = field.get_default()
    return "leave it out" + ("" if default is None else f" for the default, {json.dumps(default, default=str)}")


def _fields(annotation: Any, parents: Sequence[int | str]) -> Mapping[str, FieldInfo]:
    """The fields of the model that lies at ``parents`` within ``annotation``."""
    model = _model_in(annotation)
    if model is None:
        return {}
    if not parents:
        return model.model_fields
    field = model.model_fields.get(str(parents[0]))
    return _fields(field.annotation, parents[1:]) if field is not None else {}


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that ``annotation`` is, or that it is an alternative of (``Model | None``)."""
    for candidate in (annotation, *typing.get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None


def shown(value: Any) -> Any:
    """A wrong value as it is shown back: as it is when small and plain, else its beginning."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int) and abs(value) < 1 << 63:
        return value
    if isinstance(value, str):
        return value if len(value) <= _LONGEST_VALUE else value[:_LONGEST_VALUE] + "…"
    return reprlib.repr(value)
