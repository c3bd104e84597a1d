"""The types of the REST API for the pages, from the OpenAPI document: written before the pages are checked."""

import json
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI

from doc_pages import ROOT

TYPES = ROOT / "service" / "rekindle_service" / "web" / "static" / "shared" / "api-types.d.ts"
_PREFIX = "/api/v1"
_WIDTH = 120
_SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}

Schema = dict[str, Any]


def document() -> Schema:
    """The OpenAPI document of the API's routes, with the body of every error."""
    from rekindle_service.api.app import API_ROUTERS
    from rekindle_service.api.problems import ProblemBody

    app = FastAPI()
    for router in API_ROUTERS:
        app.include_router(router, prefix=_PREFIX)
    found = app.openapi()
    problem = ProblemBody.model_json_schema(ref_template="#/components/schemas/{model}")
    found["components"]["schemas"].update(problem.pop("$defs"), Problem=problem)
    return found


def lines() -> Iterator[str]:
    """The whole file: a type for each schema that a route uses, then the routes."""
    found = document()
    schemas = found["components"]["schemas"]
    answers = _reachable(schemas, [*_answers(found), {"$ref": "#/components/schemas/Problem"}])
    bodies = _reachable(schemas, [op["requestBody"] for _, _, op in _operations(found) if "requestBody" in op])
    yield "/** Types of the REST API, written by `make test` from the OpenAPI document: do not edit. */"
    yield "export interface Page<Item> { items: Item[]; next: string | null }"
    for name in sorted(answers | bodies, key=_name):
        if not name.startswith("Page_"):
            yield from _declaration(_name(name), schemas[name], complete=name in answers)
    yield "export type Value = string | number | boolean | null;"
    yield "/** By method and path below /api/v1: values of the path and the query, the JSON body, the answer. */"
    yield "export interface Routes {"
    for path, method, operation in _operations(found):
        yield from _wrapped(f'  "{method.upper()} {path.removeprefix(_PREFIX)}": {{', _route(operation), "  }")
    yield "}"


def _operations(found: Schema) -> Iterator[tuple[str, str, Schema]]:
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def _answers(found: Schema) -> list[Schema]:
    return [_answer(operation) for _, _, operation in _operations(found)]


def _answer(operation: Schema) -> Schema:
    """The content of the first success, by media type; empty for an answer without a body."""
    return next(answer.get("content", {}) for code, answer in operation["responses"].items() if code.startswith("2"))


def _reachable(schemas: Schema, roots: list[Schema]) -> set[str]:
    """Names of the schemas that these parts of the document refer to, directly or not."""
    found: set[str] = set()
    queue: list[Any] = list(roots)
    while queue:
        match queue.pop():
            case {"$ref": str(ref)}:
                name = ref.rpartition("/")[2]
                if name not in found:
                    found.add(name)
                    queue.append(schemas[name])
            case dict(node):
                queue.extend(node.values())
            case list(nodes):
                queue.extend(nodes)
    return found


def _name(schema: str) -> str:
    """``Page_JobPublic_`` is a Page<JobPublic>; of a name with its module, the last two words count."""
    if schema.startswith("Page_"):
        return f"Page<{_name(schema.removeprefix('Page_').removesuffix('_'))}>"
    module, _, name = schema.rpartition("__")
    return module.rpartition("__")[2].title().replace("_", "") + name


def _declaration(name: str, schema: Schema, *, complete: bool) -> Iterator[str]:
    """``complete``: the server sends every property, also those that have a default."""
    if "properties" in schema:
        yield from _wrapped(f"export interface {name} {{", _properties(schema, complete=complete), "}")
    else:
        yield from _wrapped(f"export type {name} =", [_type(schema) + ";"], "")


def _properties(schema: Schema, *, complete: bool) -> list[str]:
    required = schema["properties"] if complete else schema.get("required", [])
    return [f"{key}{'' if key in required else '?'}: {_type(each)};" for key, each in schema["properties"].items()]


def _route(operation: Schema) -> list[str]:
    values = [each for each in operation.get("parameters", []) if each["in"] in ("path", "query")]
    fields = [f"{each['name']}{'' if each['required'] else '?'}: {_url_type(each['schema'])};" for each in values]
    parts = ["values: {", *fields, "};"] if fields else ["values: {};"]
    if body := operation.get("requestBody", {}).get("content"):
        parts.append(f"body: {_content_type(body, 'Blob')};")
    return [*parts, f"answer: {_content_type(_answer(operation), 'null')};"]


def _content_type(content: Schema, otherwise: str) -> str:
    """The type of the JSON in a body, by media type."""
    return _type(content["application/json"]["schema"]) if "application/json" in content else otherwise


def _url_type(schema: Schema) -> str:
    """A URL holds text, whatever the type: null omits the value."""
    return "string[]" if "[]" in _type(schema) else "Value"


def _type(schema: Schema) -> str:
    match schema:
        case {"$ref": str(ref)}:
            return _name(ref.rpartition("/")[2])
        case {"anyOf": list(options)}:
            return " | ".join(dict.fromkeys(_type(option) for option in options))
        case {"enum": list(values)}:
            return " | ".join(json.dumps(value) for value in values)
        case {"const": value}:
            return json.dumps(value)
        case {"prefixItems": list(items)}:
            return f"[{', '.join(_type(item) for item in items)}]"
        case {"type": "array"}:
            item = _type(schema.get("items", {}))
            return f"({item})[]" if " " in item else f"{item}[]"
        case {"type": "object"}:
            return _record(schema)
        case {"type": str(kind)}:
            return _SCALARS[kind]
        case _:
            return "any"


def _record(schema: Schema) -> str:
    key = _type(schema["propertyNames"]) if "$ref" in schema.get("propertyNames", {}) else "string"
    patterns = list(schema.get("patternProperties", {}).values())
    value = patterns[0] if patterns else schema.get("additionalProperties", {})
    return f"Record<{key}, {_type(value) if isinstance(value, dict) else 'any'}>"


def _wrapped(begin: str, parts: list[str], end: str) -> Iterator[str]:
    """On one line where that fits, else the parts between ``begin`` and ``end``, as many on a line as fit."""
    whole = " ".join(each for each in [begin, *parts, end.strip()] if each)
    if len(whole) <= _WIDTH:
        yield whole
        return
    yield begin
    indent = " " * (len(begin) - len(begin.lstrip()) + 2)
    line = indent
    for part in parts:
        if line.strip() and len(line) + len(part) + 1 > _WIDTH:
            yield line
            line = indent
        line += part if line == indent else f" {part}"
    yield line
    if end:
        yield end


def text() -> str:
    return "".join(f"{line}\n" for line in lines())


if __name__ == "__main__":
    TYPES.write_text(text())
