"""One server and one browser for all tests of a file; a test that counts all jobs deletes those of the others first."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from e2e.played_job import Play
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from e2e.watcher import Watcher, watched_browser
from rekindle_service.client import Client


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pages") / "home"
    directory.mkdir(mode=0o700)
    return directory


@pytest.fixture(scope="module")
def server(home: Path, chromium: Browser) -> Iterator[ServeProcess]:
    """Needs ``chromium`` so that no server is started where the tests are skipped."""
    with ServeProcess(home) as server:
        yield server


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
def visitor(chromium: Browser, server: ServeProcess, watcher: Watcher) -> Iterator[BrowserContext]:
    """A browser that has not signed in."""
    with watched_browser(chromium, server.url, watcher) as visitor:
        yield visitor


@pytest.fixture
def page(visitor: BrowserContext, server: ServeProcess) -> Page:
    """An empty page of a browser that has signed in."""
    _sign_in(visitor, server)
    return visitor.new_page()


@pytest.fixture
def empty_list(client: Client, play: Play) -> Iterator[None]:
    """No job of the test before is left, for a test that counts all jobs.

    What is submitted is cancelled before ``play`` frees the slots for which it waits.
    """
    _cancel_all(client)
    until(lambda: all(job["ended_at"] is not None for job in client.jobs()), "all jobs of the test before have ended")
    for job in list(client.jobs()):
        client.delete(job["id"])
    yield
    _cancel_all(client)


@pytest.fixture(scope="module")
def modules(chromium: Browser, server: ServeProcess) -> Iterator[Page]:
    """A page in which the tests of a file call JavaScript modules, each in its turn."""
    with watched_browser(chromium, server.url, Watcher()) as visitor:
        _sign_in(visitor, server)
        page = visitor.new_page()
        page.goto("/submit")
        page.wait_for_selector("main[aria-busy=false]")
        yield page


def _sign_in(visitor: BrowserContext, server: ServeProcess) -> None:
    """Sign in by a request, which loads no page."""
    answer = visitor.request.post("/login", data={"token": server.token})
    assert answer.ok, answer.text()


def _cancel_all(client: Client) -> None:
    for job in list(client.jobs()):
        if job["ended_at"] is None and job["intent"] != "cancel":
            client.cancel(job["id"])
