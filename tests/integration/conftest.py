from collections.abc import Iterator
from pathlib import Path

import pytest

from api_server import ApiServer, api_server


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ApiServer]:
    with api_server(tmp_path) as running:
        yield running


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    return folder
