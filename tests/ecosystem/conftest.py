"""A server for docs/examples, whose scripts are submitted as they stand."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from doc_pages import ROOT
from e2e.serve_process import ServeProcess
from e2e.served_job import ServedJob
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings

Submit = Callable[..., ServedJob]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("ecosystem") / "home"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture(scope="module")
def client(home: Path) -> Iterator[Client]:
    with ServeProcess(home), Client.from_home(Settings(home=home)) as client:
        yield client


@pytest.fixture
def submit(home: Path, request: pytest.FixtureRequest) -> Submit:
    """Submits one of the examples; skips the test where ``package``, which it needs, is not installed."""

    def make(script: str, *args: str, package: str = "torch", **body: object) -> ServedJob:
        if find_spec(package) is None:
            pytest.skip(
                f"{package} is not installed; it comes with the extra: pip install 'rekindle-torchrun[ecosystem]'"
            )
        code = {"path": str(ROOT / "docs" / "examples")}
        wanted = {"script": script, "args": list(args), "code": code, "device": "cpu", "ranks": 2, **body}
        return ServedJob(request.getfixturevalue("client"), home, wanted)

    return make
