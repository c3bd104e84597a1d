"""What docs/experiments.md shows can be typed and sent, and no builtin is missing."""

import shlex
import tomllib

import pytest

import doc_pages
from docs.test_readme import blocks, parse
from rekindle_service.api.schemas.experiments import ExperimentCreate
from rekindle_service.experiments import built_in

PAGE = (doc_pages.ROOT / "docs" / "experiments.md").read_text()


@pytest.mark.parametrize("line", [line for block in blocks("bash", PAGE) for line in block.splitlines() if line])
def test_every_shown_command_is_understood(line: str) -> None:
    program, *words = shlex.split(line)
    assert program == "rekindle"
    parse(words)


@pytest.mark.parametrize("block", blocks("toml", PAGE))
def test_a_shown_file_is_an_experiment(block: str) -> None:
    assert ExperimentCreate.model_validate(tomllib.loads(block)).matrix


def test_every_builtin_has_its_command_and_its_table() -> None:
    for name in built_in.names():
        assert f"`rekindle experiment {name} --follow`" in PAGE, name


def test_every_key_of_a_request_is_explained() -> None:
    for key in ExperimentCreate.model_fields.keys() - {"builtin", "size"}:
        assert f"`{key}`" in PAGE, key
