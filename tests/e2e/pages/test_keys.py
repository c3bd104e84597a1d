"""Keys, their overlay, and what the page says while the server is away."""

import re
from pathlib import Path

from playwright.sync_api import BrowserContext, Locator, Page, expect

from e2e.played_job import Play
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from e2e.watcher import Watcher, found_by_axe
from rekindle.contract.states import JobState
from rekindle_service.client import Client

_MAX_TABS = 60


def test_a_failed_job_is_read_with_keys_alone(page: Page, play: Play) -> None:
    job = play("digits")
    job.begin_attempt()
    failed = job.raise_in(1, "ValueError", "no", source="raise ValueError('no')\n", line=1)
    job.end_attempt(failed, last_step=1)
    job.end(JobState.FAILED, failed)
    page.goto(f"/jobs/{job.id}")
    expect(page.get_by_role("heading", name="ValueError in rank 1")).to_be_visible()
    page.keyboard.press("?")
    overlay = page.get_by_role("dialog", name="Keys")
    expect(overlay.get_by_role("heading", level=3)).to_have_text(
        ["Every page", "Palette", "This job", "Time axis and charts", "Log"]
    )
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
    page.wait_for_url("/")


def submit_held(page: Page, name: str, script: Path) -> None:
    """Fill in and send the form, with one of the advanced fields."""
    keys = page.keyboard
    page.wait_for_selector("main[aria-busy=false]")
    for label, text in (("Script", str(script)), ("Job name", name)):
        tab_to(page, page.get_by_label(label, exact=True))
        keys.type(text)
    tab_to(page, page.locator("#advanced > summary"))
    keys.press("Enter")
    tab_to(page, page.get_by_label("On hold"))
    keys.press("Space")
    tab_to(page, page.get_by_role("button", name="Submit the job"))
    keys.press("Enter")


def test_the_whole_flow_needs_no_mouse(
    visitor: BrowserContext, server: ServeProcess, client: Client, play: Play, tmp_path: Path
) -> None:
    """Sign in, find a job, move on its axis, search its log, submit another one, cancel it."""
    job = play("needle-search")
    job.begin_attempt()
    job.write(b"hay\nneedle 1\nhay\nneedle 2\n")
    job.sample("train", 10, 0.1, 0.2)
    job.report(0, step=10)
    (tmp_path / "train.py").write_text("")
    page = visitor.new_page()
    keys = page.keyboard
    page.goto("/login")
    keys.type(server.token)
    keys.press("Enter")
    expect(page.locator("#jobs .job-name", has_text="needle-search")).to_be_visible()

    keys.press("Control+k")
    keys.type("needle")
    expect(page.locator("#palette-list li").first).to_contain_text("needle-search")
    keys.press("Enter")
    expect(page.locator("#job-name")).to_have_text("needle-search")
    expect(page.locator("#lanes")).to_be_visible()
    keys.press("t")
    for key in ("End", "ArrowLeft", "Shift+ArrowLeft"):
        keys.press(key)
    expect(page).to_have_url(re.compile(r"#t=\d+"))
    expect(page.locator("#axis-reading")).not_to_be_empty()
    keys.press("/")
    keys.type("needle")
    for key, found in (("Enter", "1 of 2"), ("Enter", "2 of 2"), ("Shift+Enter", "1 of 2")):
        keys.press(key)
        expect(page.locator("#log-found")).to_have_text(found)

    tab_to(page, page.get_by_label("Rank", exact=True), "Shift+Tab")
    tab_to(page, page.get_by_role("link", name="Submit"), "Shift+Tab")
    keys.press("Enter")
    submit_held(page, "by-keys", tmp_path / "train.py")
    expect(page.locator("#job-name")).to_have_text("by-keys")
    expect(page.locator("#job-state")).to_have_text("held")
    keys.press("g")
    keys.press("q")
    row = page.locator("#jobs").get_by_role("row", name="by-keys")
    expect(row.locator(".badge")).to_have_text("held")
    tab_to(page, row.locator(".job-name"), "j")
    keys.press("x")
    expect(page.locator("#bulk-count")).to_have_text("1 selected")
    keys.press("a")
    tab_to(page, page.locator("#bulk-cancel"))
    keys.press("Enter")
    tab_to(page, page.locator("#confirm-yes"))
    keys.press("Enter")
    expect(page.locator("#bulk-result")).to_have_text("1 job cancelled")
    keys.press("u")
    expect(page.locator("#bulk")).to_be_hidden()
    until(lambda: [each["state"] for each in client.jobs(name="by-keys")] == ["cancelled"], "the job is cancelled")


def tab_to(page: Page, control: Locator, key: str = "Tab") -> None:
    """Press the key until the control has the focus, as somebody without a mouse does."""
    expect(control).to_be_visible()
    for _ in range(_MAX_TABS):
        if control.evaluate("(node) => node === document.activeElement"):
            return
        page.keyboard.press(key)
    raise AssertionError(f"{_MAX_TABS} times {key} do not lead to {control}")


def test_a_page_explains_what_it_means_that_the_server_is_away(
    page: Page, server: ServeProcess, watcher: Watcher
) -> None:
    watcher.expect("net::ERR_")
    watcher.expect("404")
    page.goto("/nosuchpage")
    expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
    expect(page.locator("#connection")).to_have_text("Live")
    assert found_by_axe(page) == []
    server.kill()
    expect(page.locator(".offline")).to_contain_text("Running jobs continue without it.")
    assert found_by_axe(page) == []
    server.start()
    expect(page.locator("#connection")).to_have_text("Live")
    expect(page.locator(".offline")).to_be_hidden()
