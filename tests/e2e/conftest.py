"""A real browser and a real server for the tests of the page."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from e2e.played_job import PlayedJob, played_jobs
from e2e.serve_process import ServeProcess
from e2e.watcher import Watcher
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
    expect.set_options(timeout=30_000)  # milliseconds: other tests run at the same time
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=_BROWSER_ARGUMENTS)
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
def play(server: ServeProcess, home: Path) -> Iterator[Callable[..., PlayedJob]]:
    """Makes jobs whose keeper and ranks the test plays itself; see ``PlayedJob``."""
    with played_jobs(home) as make:
        yield make


@pytest.fixture
def watcher() -> Watcher:
    return Watcher()


@pytest.fixture
def visitor(chromium: Browser, server: ServeProcess, watcher: Watcher) -> Iterator[BrowserContext]:
    """A browser that has not signed in. Its pages are watched, and at its end nothing must have been noticed.

    Needs ``server`` so as to be closed before it: an open page would notice the loss.
    """
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.set_default_timeout(20_000)
    context.on("page", watcher.watch)
    context.on("request", watcher.request)
    yield context
    context.close()
    assert watcher.complaints == []


@pytest.fixture
def page(visitor: BrowserContext, server: ServeProcess) -> Page:
    """A signed-in page on the list of jobs."""
    page = visitor.new_page()
    page.goto(f"{server.url}/login#token={server.token}")
    page.wait_for_url(f"{server.url}/")
    page.wait_for_selector("main[aria-busy=false]")
    return page
