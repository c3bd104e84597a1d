"""Many pages at once, a server that goes and comes back, and a job of many ranks."""

from collections.abc import Callable

from playwright.sync_api import BrowserContext, Page, expect

from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess
from e2e.watcher import Watcher

_TABS = 12
_RANKS = 64


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
        expect(tab.locator("main")).to_contain_text(f"{step} / 1,000")


def test_a_job_of_sixty_four_ranks_is_shown_whole_and_live(
    page: Page, server: ServeProcess, play: Callable[..., PlayedJob]
) -> None:
    job = play("wide", ranks=_RANKS)
    job.begin_attempt()
    page.goto(f"{server.url}/jobs/{job.id}")
    expect(page.locator("#job-state")).to_have_text("running")
    ranks = page.locator("#ranks").get_by_role("button")
    expect(ranks).to_have_count(_RANKS)
    job.write(b"words of rank 63\n", rank=63)
    job.report(63, step=77)
    page.get_by_role("button", name="rank 63").last.click()
    expect(page.locator("#log-lines")).to_contain_text("words of rank 63")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
