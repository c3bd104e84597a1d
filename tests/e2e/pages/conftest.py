"""One server for all tests of a file, since none of these minds what the others have left in the queue."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.serve_process import ServeProcess


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages") / "home"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[ServeProcess]:
    with ServeProcess(home) as server:
        yield server
