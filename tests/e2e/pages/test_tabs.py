"""Many pages at once, and a server that goes and comes back."""

from collections.abc import Callable

from playwright.sync_api import BrowserContext, Page, expect

from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess
from e2e.watcher import Watcher

_TABS = 12


def test_twelve_tabs_stay_live_while_the_server_is_restarted_under_them(
    page: Page, visitor: BrowserContext, server: ServeProcess, watcher: Watcher, play: Callable[..., PlayedJob]
) -> None:
    watcher.expect("ERR_")
    job = play("digits")
    job.begin_attempt()
    paths = ("/", f"/jobs/{job.id}", f"/compare?jobs={job.id}")
    tabs = [page, *(visitor.new_page() for _ in range(_TABS - 1))]
    for number, tab in enumerate(tabs):
        tab.goto(server.url + paths[number % len(paths)])
        expect(tab.locator("#connection")).to_have_text("Live")
        tab.evaluate("globalThis.loadedOnce = true")
    show_step(tabs, job, 250)
    server.stop()
    for tab in tabs:
        expect(tab.locator("#connection")).not_to_have_text("Live")
    server.start()
    show_step(tabs, job, 500)
    assert all(tab.evaluate("globalThis.loadedOnce") for tab in tabs)


def show_step(tabs: list[Page], job: PlayedJob, step: int) -> None:
    """Every tab shows the step without being touched, also those behind others."""
    for rank in range(job.ranks):
        job.report(rank, step=step)
    for tab in tabs:
        expect(tab.locator("main:not([hidden])")).to_contain_text(f"{step} / 1,000")
