from collections.abc import Iterator
from pathlib import Path

import pytest

from api_server import ApiServer, api_server
from e2e.serve_process import ServeProcess


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server(tmp_path) as running:
        yield running


@pytest.fixture
def code(tmp_path: Path) -> Path:
    directory = tmp_path / "code"
    directory.mkdir()
    return directory


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One application for the tests of a file that do not mind each other's rows."""
    with api_server(tmp_path_factory.mktemp("server")) as running:
        yield running


@pytest.fixture(scope="module")
def shared_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("code")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    """The server as a process, for the tests of a file that do not mind each other's jobs."""
    home = tmp_path_factory.mktemp("served") / "home"
    home.mkdir(mode=0o700)
    with ServeProcess(home) as process:
        yield process


@pytest.fixture
def served_home(served: ServeProcess) -> Path:
    return served.home
