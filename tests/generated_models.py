"""The client's typed dictionaries, generated from the OpenAPI document of the server.

``python tests/generated_models.py`` (or ``make generate``) writes ``client/models.py``; ``test_client_models.py``
compares it.
"""

import keyword
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from generated_types import document

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "service" / "rekindle_service" / "client" / "models.py"

ANSWERS = (
    "/jobs/validate",
    "/jobs/{job_id}",
    "/jobs/{job_id}/attempts",
    "/jobs/{job_id}/story",
    "/jobs/{job_id}/log",
    "/jobs/{job_id}/time",
    "/jobs/{job_id}/configuration",
    "/jobs/{job_id}/ranks",
    "/jobs/{job_id}/snapshots",
    "/jobs/{job_id}/metrics",
    "/jobs/{job_id}/events",
    "/jobs/{job_id}/chaos",
    "/queue",
    "/overview",
    "/devices",
    "/disk",
    "/disk/prune",
    "/experiments",
    "/experiments/{experiment_id}",
    "/experiments/{experiment_id}/best",
    "/experiments/builtin",
    "/me",
    "/tokens",
    "/audit",
)
"""The paths whose answers the client describes."""

NAMES = {
    "Event": "JobEvent",
    "Piece": "Interval",
    "Chaos": "FaultInjection",
    "Audit": "AuditEntry",
    "TokenCreated": "NewToken",
}
"""Names of the client for schemas that are named otherwise, without their ``Public``."""

_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}
_HEAD = '''"""What the server answers, generated from its OpenAPI document by ``make generate``: do not edit.

Times are ISO 8601 in UTC, durations are seconds, sizes are bytes.
"""

from typing import Any, Literal, TypedDict
'''


def openapi() -> dict[str, Any]:
    """The document of the API's routers, with the schema of outcomes, which rows store as plain JSON."""
    from rekindle.contract.outcome import Outcome

    found = document()
    outcome = TypeAdapter(Outcome).json_schema(ref_template="#/components/schemas/{model}")
    schemas = found["components"]["schemas"]
    schemas.update(outcome.pop("$defs"))
    outcome["properties"] = {"class": outcome["properties"].pop("klass"), **outcome["properties"]}
    schemas["Outcome"] = outcome
    for schema in schemas.values():
        for option in schema.get("properties", {}).get("outcome", {}).get("anyOf", ()):
            if option.get("type") == "object":
                option["$ref"] = "#/components/schemas/Outcome"
    return found


def models(found: dict[str, Any]) -> str:
    """The module: every schema in the answers, each after those that it refers to."""
    schemas = found["components"]["schemas"]
    ordered: dict[str, None] = {}
    for path in ANSWERS:
        for operation in found["paths"][f"/api/v1{path}"].values():
            for status, response in operation["responses"].items():
                if status.startswith("2") and "content" in response:
                    _visit(response["content"]["application/json"]["schema"], schemas, ordered)
    names = [name for name in ordered if not _is_page(name)]
    public = f"__all__ = {sorted(map(class_name, names))}"
    text = "\n\n".join([f"{_HEAD}\n{public}", *(_definition(name, schemas[name]) for name in names)])
    return subprocess.run(
        [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(MODELS), "-"],
        input=text,
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def _visit(schema: Any, schemas: dict[str, Any], ordered: dict[str, None]) -> None:
    for reference in _references(schema):
        name = reference.rpartition("/")[2]
        if name not in ordered:
            _visit(schemas[name], schemas, ordered)
            ordered[name] = None


def _references(schema: Any) -> Iterator[str]:
    """Every ``$ref`` in a schema, but not those of keys, which are always strings."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            yield schema["$ref"]
        for key, value in schema.items():
            if key != "propertyNames":
                yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)


def _is_page(schema: str) -> bool:
    return schema.startswith("Page_")


def class_name(schema: str) -> str:
    """``AttemptPublic`` → ``Attempt``, ``rekindle_service__run_readers__usage__DeviceUsage`` → ``DeviceUsage``."""
    name = schema.rpartition("__")[2].removesuffix("Public")
    return NAMES.get(name, name)


def _definition(schema_name: str, schema: dict[str, Any]) -> str:
    name = class_name(schema_name)
    if "enum" in schema:
        return f"{name} = {annotation(schema)}"
    docstring = schema.get("description", "").replace("\n", "\n    ").replace("    \n", "\n")
    fields = {field: annotation(value) for field, value in schema["properties"].items()}
    if any(map(keyword.iskeyword, fields)):
        inside = "".join(f"{field!r}: {kind}," for field, kind in fields.items())
        return f'{name} = TypedDict("{name}", {{{inside}}})\n"""{docstring}"""'
    end = "\n    " if "\n" in docstring else ""
    lines = [f'"""{docstring}{end}"""\n'] if docstring else []
    return f"class {name}(TypedDict):\n" + "\n".join(
        f"    {line}" for line in [*lines, *(f"{field}: {kind}" for field, kind in fields.items())]
    )


def annotation(schema: dict[str, Any]) -> str:
    """The Python type of a schema."""
    match schema:
        case {"$ref": str(reference)}:
            return class_name(reference.rpartition("/")[2])
        case {"anyOf": options} | {"oneOf": options}:
            return " | ".join(dict.fromkeys(map(annotation, options)))
        case {"enum": values}:
            return f"Literal[{', '.join(map(repr, values))}]"
        case {"const": value}:
            return f"Literal[{value!r}]"
        case {"prefixItems": items}:
            return f"tuple[{', '.join(map(annotation, items))}]"
        case {"type": "array"}:
            return f"list[{annotation(schema.get('items', {}))}]"
        case {"type": "object"}:
            values = schema.get("additionalProperties", True)
            values = next(iter(schema.get("patternProperties", {}).values()), values)
            return f"dict[str, {annotation(values) if isinstance(values, dict) else 'Any'}]"
        case {"type": kind}:
            return _SCALARS[kind]
    return "Any"


if __name__ == "__main__":
    MODELS.write_text(models(openapi()))
