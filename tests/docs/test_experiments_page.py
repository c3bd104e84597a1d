"""What docs/experiments.md shows can be sent, and docs/tutorials.md lacks no builtin; test_commands.py runs both."""

import tomllib

from doc_pages import ROOT, blocks
from rekindle_service.experiments import built_in
from rekindle_service.schemas.experiment_json import ExperimentCreate

PAGE = (ROOT / "docs" / "experiments.md").read_text()
TUTORIALS = (ROOT / "docs" / "tutorials.md").read_text()


def test_every_shown_file_is_an_experiment() -> None:
    for block in blocks("toml", "docs/experiments.md"):
        assert ExperimentCreate.model_validate(tomllib.loads(block.text)).matrix, block


def test_every_builtin_has_its_command_and_its_result() -> None:
    for name in built_in.names():
        assert f"`rekindle experiment {name} --follow`" in TUTORIALS, name


def test_every_key_of_a_request_is_explained() -> None:
    for key in ExperimentCreate.model_fields.keys() - {"builtin", "size"}:
        assert f"`{key}`" in PAGE, key
