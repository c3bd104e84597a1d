"""The page of all routes with their parameters, bodies and answers, from the OpenAPI document of the server."""

from collections.abc import Iterator

from fastapi import FastAPI

from docs.reference.json_schema import Schema, default, is_nullable, limits, type_name
from docs.reference.markdown import GENERATED, anchor, code, prose, table
from docs.reference.rest_examples import request

_INTRODUCTION = """\
Requests and answers are JSON. Every route but `/healthz` and `/readyz` takes the header `Authorization: Bearer TOKEN`;
`rekindle token` prints the token. `/openapi.json` has the same as an OpenAPI document, and the page `/docs/api` of a
server lets people who have signed in try out the routes in the browser. `rekindle_service.client` is a
[Python client](../client.md).

```bash
curl -H "Authorization: Bearer $(rekindle token)" http://127.0.0.1:8700/api/v1/jobs
```

- Times are ISO 8601 in UTC, durations are seconds, sizes are bytes.
- **Pagination**: lists take `limit` and `cursor` and answer `{"items": [...], "next": CURSOR}`; `next` is the cursor of
  the next page, or null on the last one.
- An unknown query parameter or field of a body is rejected (422).
- `{job_id}` is the full id; [`GET /api/v1/jobs/resolve`](#get-apiv1jobsresolve) finds a job by its number, its name or
  the beginning of its id.
- **Retries**: a route with the parameter `Idempotency-Key` can be retried safely: the same key gets the first result.
  After 429 or 503 wait the seconds of the header `Retry-After`.

## Errors

An error is `application/problem+json` ([RFC 9457](https://www.rfc-editor.org/rfc/rfc9457)): a [Problem](#problem),
whose `errors` name each invalid field with the rule, the value and a hint."""


def lines() -> Iterator[str]:
    """The whole page."""
    found = document()
    operations = [
        (f"{method.upper()} {path}", each) for path, all_of in found["paths"].items() for method, each in all_of.items()
    ]
    yield from ("# REST API", "", GENERATED, "", *_INTRODUCTION.splitlines(), "")
    yield from table(("status", "when"), ((str(status), text) for status, text in _common_errors().items()))
    yield from ("## Routes", "")
    yield from table(("route", "does"), ((f"[`{name}`](#{anchor(name)})", _summary(each)) for name, each in operations))
    for name, operation in operations:
        yield from _route(name, operation)
    yield from ("## Schemas", "", "A field without a default is always in an answer, and required in a request.", "")
    for name in _reachable(found):
        yield from _schema(name, found["components"]["schemas"][name])


def document() -> Schema:
    """The OpenAPI document of the API, of health and of metrics, with the body of every error."""
    from rekindle_service.api.app import API_ROUTERS
    from rekindle_service.api.problems import RESPONSES, ProblemBody
    from rekindle_service.api.routes import monitoring

    app = FastAPI()
    for router in API_ROUTERS:
        app.include_router(router, prefix="/api/v1", responses=RESPONSES)
    app.include_router(monitoring.router)
    found = app.openapi()
    problem = ProblemBody.model_json_schema(ref_template="#/components/schemas/{model}")
    found["components"]["schemas"].update(problem.pop("$defs"), Problem=problem)
    return found


def _common_errors() -> dict[int | str, str]:
    from rekindle_service.api.problems import RESPONSES

    return {status: response["description"] for status, response in RESPONSES.items()}


def _summary(operation: Schema) -> str:
    return prose(operation.get("description", "")).partition("\n\n")[0].split(". ")[0].rstrip(".")


def _route(name: str, operation: Schema) -> Iterator[str]:
    yield from (f"### `{name}`", "", *prose(operation.get("description", "")).splitlines(), "")
    yield from table(("parameter", "in", "type", "default", "means"), map(_parameter, operation.get("parameters", ())))
    yield from _body(operation.get("requestBody"))
    required = [each["name"] for each in operation.get("parameters", ()) if each["in"] == "query" and each["required"]]
    yield from ("```text", *request(name, required).splitlines(), "```", "")
    yield from table(("answer", "body", "means"), _answers(operation["responses"]))


def _parameter(parameter: Schema) -> tuple[str, str, str, str, str]:
    schema = parameter["schema"]
    name = "Idempotency-Key" if parameter["name"] == "idempotency-key" else parameter["name"]
    needed = "required" if parameter.get("required") and parameter["in"] != "path" else default(schema)
    return code(name), parameter["in"], _type(schema), needed, parameter.get("description", "")


def _body(body: Schema | None) -> Iterator[str]:
    if body is not None:
        kinds = [f"{_type(content['schema'])} as `{kind}`" for kind, content in body["content"].items()]
        yield from (f"Body: {' or '.join(kinds)}{'' if body.get('required') else ', which may be omitted'}.", "")


def _answers(responses: Schema) -> Iterator[tuple[str, str, str]]:
    """The answers of one route: not the errors that any route may give."""
    common = _common_errors()
    for status, response in responses.items():
        text = response.get("description", "")
        if text in ("Validation Error", common.get(int(status))):
            continue
        kinds = [
            _type(content["schema"]) if content.get("schema") else f"`{kind}`"
            for kind, content in response.get("content", {}).items()
        ]
        yield status, " or ".join(dict.fromkeys(kinds)) or "none", "" if text == "Successful Response" else text


def _type(schema: Schema) -> str:
    return " ".join(filter(None, (type_name(schema, _link), f"({bounds})" if (bounds := limits(schema)) else "")))


def _link(name: str) -> str:
    if name.startswith("Page_"):
        return f"page of {_link(name.removeprefix('Page_').removesuffix('_'))}"
    return f"[{name}](#{anchor(name)})"


def _reachable(found: Schema) -> list[str]:
    """The names of the schemas that have a section; pages of lists and FastAPI's own errors have none."""
    own = {"HTTPValidationError", "ValidationError"}
    return sorted(name for name in found["components"]["schemas"] if not name.startswith("Page_") and name not in own)


def _schema(name: str, schema: Schema) -> Iterator[str]:
    yield from (f"### {name}", "")
    if text := prose(schema.get("description")):
        yield from (*text.splitlines(), "")
    if "properties" not in schema:
        yield from (f"One of {type_name(schema, _link)}.", "")
    required = schema.get("required", ())
    rows = (
        (code(field), _field_type(each), _needed(field in required, each), each.get("description", ""))
        for field, each in schema.get("properties", {}).items()
    )
    yield from table(("field", "type", "default", "means"), rows)


def _field_type(schema: Schema) -> str:
    return _type(schema) + (" or null" if is_nullable(schema) else "")


def _needed(required: bool, schema: Schema) -> str:
    return "" if required else default(schema) or ("null" if is_nullable(schema) else "not set")
