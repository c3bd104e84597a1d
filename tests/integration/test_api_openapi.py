"""``/openapi.json`` describes every field, parameter and route, and documents the responses that routes give."""

from collections.abc import Iterator
from typing import Any

import pytest

from api_server import api_server

Json = dict[str, Any]


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Json]:
    with api_server(tmp_path_factory.mktemp("openapi")) as server:
        yield server.api.get("/openapi.json").json()


def operations(document: Json) -> Iterator[tuple[str, Json]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def test_every_schema_and_property_has_a_description(document: Json) -> None:
    described = dict(document["components"]["schemas"])
    for schema, found in document["components"]["schemas"].items():
        described |= {f"{schema}.{name}": field for name, field in found.get("properties", {}).items()}
    assert len(described) > 600
    assert [name for name, schema in described.items() if not schema.get("description")] == []


def test_every_route_and_parameter_has_a_description(document: Json) -> None:
    for name, operation in operations(document):
        assert operation["summary"], name
        assert operation["description"], name
        for parameter in operation.get("parameters", ()):
            assert parameter.get("description"), f"{name}: {parameter['name']}"


def test_the_responses_are_those_that_routes_give(document: Json) -> None:
    found = dict(operations(document))
    assert "`bundle_bytes`" in found["POST /api/v1/bundles"]["responses"]["413"]["description"]
    assert "10 MiB" in found["POST /api/v1/jobs"]["responses"]["413"]["description"]
    beyond_end = [name for name, operation in found.items() if "416" in operation["responses"]]
    assert beyond_end == ["GET /api/v1/jobs/{job_id}/ranks/{rank}/log"]


def test_a_safe_retry_is_documented_where_it_is_possible(document: Json) -> None:
    keyed = [
        name
        for name, operation in operations(document)
        if any(parameter["name"] == "Idempotency-Key" for parameter in operation.get("parameters", ()))
    ]
    assert keyed == ["POST /api/v1/jobs", "POST /api/v1/experiments"]
