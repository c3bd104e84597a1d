"""A real browser and a real server."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from e2e.played_job import Play, played_jobs
from e2e.serve_process import ServeProcess
from plain_torchrun import EXACT, cold_torchrun
from recipe_process import RecipeProcess
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings

_BROWSER_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    executable = shutil.which("chromium")
    if executable is None:
        pytest.skip("no Chromium on PATH")
    expect.set_options(timeout=30_000)  # milliseconds: other tests run at the same time
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=_BROWSER_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def server(home: Path) -> Iterator[ServeProcess]:
    with ServeProcess(home) as server:
        yield server


@pytest.fixture
def client(server: ServeProcess, home: Path) -> Iterator[Client]:
    with Client.from_home(Settings(home=home)) as client:
        yield client


@pytest.fixture
def play(server: ServeProcess, home: Path) -> Iterator[Play]:
    """Makes jobs whose keeper and ranks the test plays itself; see ``PlayedJob``."""
    with played_jobs(home) as make:
        yield make


@pytest.fixture(scope="session")
def recipes() -> Iterator[RecipeProcess]:
    process = RecipeProcess()
    yield process
    process.kill()


@pytest.fixture(scope="session")
def exact_training(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of ``exact.py`` on two ranks, which nothing has disturbed."""
    directory = tmp_path_factory.mktemp("exact")
    ended = cold_torchrun(2, [EXACT], directory)
    assert ended.code == 0, ended.output
    return directory
