"""Keys, their overlay, and what the page says while the server is away."""

from collections.abc import Callable

from playwright.sync_api import Page, expect

from e2e.pages.test_accessibility import found_by_axe
from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess
from e2e.watcher import Watcher
from rekindle.contract.states import JobState


def test_a_failed_job_is_read_with_keys_alone(page: Page, server: ServeProcess, play: Callable[..., PlayedJob]) -> None:
    job = play("digits")
    job.begin_attempt()
    failed = job.raise_in(1, "ValueError", "no", source="raise ValueError('no')\n", line=1)
    job.end_attempt(failed, last_step=1)
    job.end(JobState.FAILED, failed)
    page.goto(f"{server.url}/jobs/{job.id}")
    expect(page.get_by_role("heading", name="ValueError in rank 1")).to_be_visible()
    page.keyboard.press("?")
    overlay = page.get_by_role("dialog", name="Keys")
    expect(overlay).to_contain_text("go to the log")
    page.keyboard.press("l")
    expect(page.locator("#log")).not_to_be_focused()
    assert found_by_axe(page) == []
    page.keyboard.press("Escape")
    expect(overlay).to_be_hidden()
    page.keyboard.press("w")
    expect(page.locator("#story-title")).to_be_focused()
    page.keyboard.press("e")
    expect(page.locator("#log-lines .marked")).to_have_text("Traceback (most recent call last):")
    page.keyboard.press("[")
    expect(page.get_by_label("Rank", exact=True)).to_have_value("0")
    page.keyboard.press("3")
    expect(page.locator("#configuration")).to_be_visible()
    expect(page.get_by_role("tab", name="Configuration")).to_be_focused()
    page.keyboard.press("/")
    page.keyboard.type("?gq")
    expect(page.get_by_label("Search text")).to_have_value("?gq")
    page.get_by_label("Search text").blur()
    page.keyboard.press("g")
    page.keyboard.press("q")
    page.wait_for_url(f"{server.url}/")


def test_a_page_explains_what_it_means_that_the_server_is_away(
    page: Page, server: ServeProcess, watcher: Watcher
) -> None:
    watcher.expect("net::ERR_")
    watcher.expect("404")
    page.goto(f"{server.url}/nosuchpage")
    expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
    expect(page.locator("#connection")).to_have_text("Live")
    assert found_by_axe(page) == []
    server.kill()
    expect(page.locator(".offline")).to_contain_text("Running jobs continue without it.")
    assert found_by_axe(page) == []
    server.start()
    expect(page.locator("#connection")).to_have_text("Live")
    expect(page.locator(".offline")).to_be_hidden()
