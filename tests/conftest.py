"""``--soak N``: run the long randomised tests too, with N faults each."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", type=int, metavar="N", help="run the soak tests, with N faults in each")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--soak") is None:
        skip = pytest.mark.skip(reason="a long randomised run: --soak N")
        for item in items:
            if item.get_closest_marker("soak"):
                item.add_marker(skip)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home as a server makes it: closed to everybody else."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder
