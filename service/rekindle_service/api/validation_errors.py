"""Pydantic's errors as ``FieldError``: field, rule, value and a hint on what to do."""

import json
import re
import reprlib
import typing
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rekindle_service.secret_values import hide_secrets
from rekindle_service.submission import FieldError
from rekindle_service.suggestions import closest, did_you_mean, rule_of

_MAX_VALUE_LENGTH = 200  # characters of an invalid value in a response
_MAX_ERRORS = 20
_CHOICE = re.compile(r"'([^']*)'")
_NO_FIELDS = frozenset({"[key]", "[value]", "[source]"})  # parts of a location that no request has


def field_errors(errors: Sequence[Mapping[str, Any]], body: Any = None) -> list[FieldError]:
    """One entry per broken rule, at most 20. ``body`` is the type that the request body should have."""
    return [
        FieldError(
            _field_name(error["loc"]),
            _rule(error),
            hide_secrets(error.get("input"), tuple(error["loc"])),
            _hint(error, body),
        )
        for error in errors[:_MAX_ERRORS]
    ]


def _field_name(location: Sequence[int | str]) -> str:
    """``ranks.max`` for ``("body", "ranks", "max")``, and ``body`` for the body itself."""
    parts = [str(part) for part in location if part not in _NO_FIELDS]
    if parts[0] in ("body", "query", "path", "header", "cookie") and len(parts) > 1:
        parts = parts[1:]
    return ".".join(parts)


def _rule(error: Mapping[str, Any]) -> str:
    match error["type"]:
        case "extra_forbidden":
            return "unknown field"
        case "missing":
            return "is required"
        case "json_invalid":
            return f"must be valid JSON: {(error.get('ctx') or {}).get('error', 'cannot be parsed')}"
        case "model_attributes_type":
            return "must be a JSON object, sent as application/json"
        case _:
            return rule_of(str(error["msg"]))


def _hint(error: Mapping[str, Any], body: Any) -> str:
    *parents, name = [part for part in error["loc"][1:] if part not in _NO_FIELDS] or [""]
    fields = _fields(body if error["loc"][0] == "body" else None, parents)
    if error["type"] == "extra_forbidden":
        return did_you_mean(str(name), list(fields))
    hint = (error.get("ctx") or {}).get("hint")
    if hint is None and error["type"] in ("enum", "literal_error"):
        hint = _nearest_choice(error)
    return str(hint) if hint is not None else _default_hint(fields.get(str(name)))


def _nearest_choice(error: Mapping[str, Any]) -> str | None:
    """None where no choice is like the value: the rule lists all of them."""
    near = closest(str(error.get("input"))[:_MAX_VALUE_LENGTH], _CHOICE.findall(error["ctx"]["expected"]))
    return f"did you mean {' or '.join(map(repr, near))}?" if near else None


def _default_hint(field: FieldInfo | None) -> str:
    """What omitting a field means, where it may be omitted."""
    if field is None or field.is_required():
        return ""
    default = field.get_default()
    return "omit it" + ("" if default is None else f" for the default, {json.dumps(default, default=str)}")


def _fields(annotation: Any, parents: Sequence[int | str]) -> Mapping[str, FieldInfo]:
    """The fields of the model at the key path ``parents`` of ``annotation``, by their names in JSON."""
    model = _model_in(annotation)
    fields = {} if model is None else {field.alias or name: field for name, field in model.model_fields.items()}
    if not parents:
        return fields
    field = fields.get(str(parents[0]))  # else an index of a list, or a key of an object without fixed fields
    return _fields(annotation if field is None else field.annotation, parents[1:])


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that ``annotation`` is or contains, as in ``Model | None`` and ``list[Model]``."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in typing.get_args(annotation) if (model := _model_in(part)) is not None), None)


def truncate(value: Any) -> Any:
    """An invalid value as a response shows it: unchanged when small and plain, else its beginning."""
    if isinstance(value, str):
        return value if len(value) <= _MAX_VALUE_LENGTH else value[:_MAX_VALUE_LENGTH] + "…"
    return value if value is None or (isinstance(value, int) and abs(value) < 1 << 63) else reprlib.repr(value)
