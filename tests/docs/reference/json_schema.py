"""What a JSON schema says, in words."""

import json
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]
Link = Callable[[str], str]
"""How a named schema is referred to."""

_FORMATS = {"date-time": "time", "path": "path", "uri": "URL", "password": "string"}
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "above {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "below {}",
}
_LENGTHS = {"minLength": "at least {} characters", "maxLength": "at most {} characters"}
_COUNTS = {"minItems": "at least {} items", "maxItems": "at most {} items"}


def type_name(schema: Schema, link: Link) -> str:
    """The type of a value, without null: ``is_nullable`` has that."""
    if "$ref" in schema:
        return link(schema["$ref"].rpartition("/")[2])
    if choices := _choices(schema):
        return " or ".join(dict.fromkeys(type_name(one, link) for one in choices))
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {type_name(schema.get('items', {}), link)}"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {type_name(schema['additionalProperties'], link)} by name"
    return _FORMATS.get(schema.get("format", ""), schema.get("type", "any value"))


def is_nullable(schema: Schema) -> bool:
    return schema.get("type") == "null" or any(map(is_nullable, schema.get("anyOf", ())))


def limits(schema: Schema) -> str:
    """The range of a number, the length of a text or of a list; empty where there is none."""
    parts = [limits(one) for one in _choices(schema)]
    for names in (_BOUNDS, _LENGTHS, _COUNTS):
        parts += [text.format(_number(schema[name])) for name, text in names.items() if name in schema]
    return ", ".join(dict.fromkeys(filter(None, parts)))


def default(schema: Schema) -> str:
    """What a value is where it is not given; empty where the schema says nothing, or null."""
    value = schema.get("default")
    return "" if value is None or value in ([], {}, "") else f"`{json.dumps(value)}`"


def _choices(schema: Schema) -> list[Schema]:
    found = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf") or []
    return [one for one in found if one.get("type") != "null"]


def _number(value: float) -> str:
    return f"{value:,.15g}" if abs(value) < 1 << 62 else "2⁶³ - 1"
