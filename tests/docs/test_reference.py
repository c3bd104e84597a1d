"""Every page of docs/reference is what the code says."""

import json
import re
from pathlib import Path
from typing import get_args, get_type_hints
from urllib.parse import parse_qsl

from pydantic import TypeAdapter

import generated_reference
from doc_pages import ROOT
from docs.reference import environment_variables, event_types, rest, rest_examples
from rekindle_service.api.app import API_ROUTERS
from rekindle_service.config.settings import Settings
from rekindle_service.scheduler.preemption import Displacement

_SERVICE = ROOT / "service" / "rekindle_service"


def test_every_page_of_the_reference_agrees_with_the_code() -> None:
    written = {path.name: path.read_text() for path in generated_reference.DIRECTORY.iterdir()}
    assert written.keys() == generated_reference.PAGES.keys()
    outdated = [page for page, text in written.items() if text != generated_reference.text_of(page)]
    assert outdated == [], "run `make generate`"


def in_the_code(pattern: str, *paths: Path) -> set[str]:
    files = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
    return {name for file in files for name in re.findall(pattern, file.read_text())}


def test_every_variable_that_the_code_names_is_on_the_page() -> None:
    named = in_the_code(r"\bREKINDLE_[A-Z_]+[A-Z]\b", _SERVICE, ROOT / "worker" / "rekindle")
    settings = {f"REKINDLE_{name.upper()}" for name in Settings.model_fields}
    assert named - settings - environment_variables.known() == set()


def test_every_event_that_the_code_sends_is_on_the_page() -> None:
    feed = in_the_code(r"\b_event\(\"(\w+)\"", _SERVICE / "api" / "routes") | {"hello"}
    assert feed == event_types.STREAM.keys()
    history = in_the_code(r"(?:TimelineEvent\(|\brecord\(\w+, \w+, )\"(\w+)\"", _SERVICE / "store")
    history |= in_the_code(r"TimelineEvent\(\"\w+\" if record\.missing else \"(\w+)\"", _SERVICE / "store")
    history |= in_the_code(r"retention\.record\([\w.]+, \"(\w+)\"", _SERVICE)
    history |= set(get_args(get_type_hints(Displacement)["kind"]))
    assert history - {"deleted"} == event_types.HISTORY.keys(), "but `deleted`, whose job has no history any more"


def test_every_example_of_a_query_has_parameters_of_its_route() -> None:
    paths = rest.document()["paths"]
    for name, query in rest_examples.QUERIES.items():
        method, _, path = name.partition(" ")
        known = {each["name"] for each in paths[path][method.lower()]["parameters"] if each["in"] == "query"}
        assert dict(parse_qsl(query)).keys() <= known, name


def test_every_example_of_a_body_is_accepted_by_its_route() -> None:
    bodies = {name: json.dumps(body) for name, body in rest_examples.BODIES.items()}
    for router in API_ROUTERS:
        for route in router.routes:
            body = bodies.pop(f"{min(route.methods)} /api/v1{route.path}", None)
            assert route.body_field is None or body is not None, route.path
            if body is not None:
                TypeAdapter(route.body_field.field_info.annotation).validate_json(body)
    assert bodies == {}, "of no route"
