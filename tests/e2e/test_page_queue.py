"""The list of jobs in a browser."""

from collections.abc import Callable

from playwright.sync_api import BrowserContext, Page, expect

from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle_service.states import JobState

HOSTILE = "<img src=x onerror=alert(1)> \"'> <script>alert(2)</script> {{7*7}} \u202eevil"


def test_an_empty_list_shows_the_command_to_type(page: Page) -> None:
    expect(page.locator("#nothing-yet")).to_contain_text("rekindle submit train.py")
    expect(page.locator("#nothing-yet")).to_contain_text("rekindle demo")


def test_a_job_and_its_progress_appear_without_reload(page: Page, play: Callable[..., PlayedJob]) -> None:
    page.evaluate("globalThis.loadedOnce = true")
    job = play("digits-baseline")
    row = page.get_by_role("row", name="digits-baseline")
    expect(row.locator(".badge")).to_have_text("starting")
    job.begin_attempt()
    expect(row.locator(".badge")).to_have_text("running")
    for rank in (0, 1):
        job.report(rank, step=250)
    expect(row).to_contain_text("step 250 / 1,000")
    expect(row.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "25")
    job.end(JobState.FAILED, _failure())
    expect(row.locator(".badge")).to_have_text("failed")
    expect(row).to_contain_text("ValueError: no such label")
    expect(row).to_contain_text("rank 1 · train.py:42")
    assert page.evaluate("globalThis.loadedOnce") is True


def test_a_browser_without_shared_workers_listens_in_the_page(
    visitor: BrowserContext, server: ServeProcess, play: Callable[..., PlayedJob]
) -> None:
    visitor.add_init_script("delete globalThis.SharedWorker")
    page = visitor.new_page()
    page.goto(f"{server.url}/login#token={server.token}")
    expect(page.locator("#connection")).to_have_text("Live")
    play("late-comer")
    expect(page.get_by_role("row", name="late-comer")).to_be_visible()
    assert page.evaluate("typeof SharedWorker") == "undefined"


def test_totals_and_slots_follow_the_jobs(page: Page, play: Callable[..., PlayedJob]) -> None:
    expect(page.locator("#total-slots")).to_have_text("0 / 4")
    play("holder", ranks=2).begin_attempt()
    expect(page.locator("#total-running")).to_have_text("1")
    expect(page.locator("#total-slots")).to_have_text("2 / 4")
    expect(page.locator("#slots .holder", has_text="holder")).to_have_count(2)


def test_filters_live_in_the_address(page: Page, play: Callable[..., PlayedJob]) -> None:
    play("one").begin_attempt()
    broken = play("two", ranks=1)
    broken.begin_attempt()
    broken.end(JobState.FAILED, _failure())
    expect(page.locator("#jobs tr")).to_have_count(2)
    page.get_by_label("State").select_option("failed")
    expect(page.locator("#jobs .job-name")).to_have_text(["two"])
    page.reload()
    expect(page.locator("#jobs .job-name")).to_have_text(["two"])
    expect(page.get_by_label("State")).to_have_value("failed")
    page.get_by_label("State").select_option("cancelled")
    expect(page.locator("#nothing-found")).to_be_visible()
    page.go_back()
    expect(page.locator("#jobs .job-name")).to_have_text(["two"])
    page.goto(page.url.partition("?")[0] + "?name=one")
    expect(page.locator("#jobs .job-name")).to_have_text(["one"])


def test_a_hostile_name_is_text_and_nothing_else(page: Page, play: Callable[..., PlayedJob]) -> None:
    job = play(HOSTILE)
    job.begin_attempt()
    job.end(JobState.FAILED, Outcome(OutcomeClass.USER_ERROR, HOSTILE, rank=0, file=HOSTILE, line=1))
    row = page.locator("#jobs tr")
    expect(row.locator(".badge")).to_have_text("failed")
    assert row.locator(".job-name").inner_text() == HOSTILE
    assert row.locator(".note bdi").inner_text() == HOSTILE
    assert page.locator("main img, main script").count() == 0


def _failure() -> Outcome:
    return Outcome(
        OutcomeClass.USER_ERROR,
        "ValueError: no such label",
        rank=1,
        exit_code=1,
        exception="ValueError",
        file="train.py",
        line=42,
        retryable=False,
    )
