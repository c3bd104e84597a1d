"""``--soak N``: run the long tests too, and give each test of random faults N of them.

So ``--soak 100`` is 100 power cuts, 100 changed bytes, or 100 kills of one job: name the test that N is meant for.
Where the faults are not random, such as a kill at every system call, N does not matter.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

# Whatever else the machine does meanwhile: no example is held against a clock.
settings.register_profile("shared-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared-machine")

os.environ.setdefault("REKINDLE_SPARE_KEEPERS", "0")  # most servers of tests start few jobs


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", type=int, metavar="N", help="run the long tests too, and give N faults to the random")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--soak") is None:
        skip = pytest.mark.skip(reason="a long run: --soak N")
        for item in items:
            if item.get_closest_marker("soak"):
                item.add_marker(skip)


@pytest.fixture(autouse=True)
def default_log() -> Iterator[None]:
    """A test that runs a command in its own process may have sent the log to its captured, soon closed, stderr."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home as a server makes it: closed to everybody else."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o700)
    return folder
