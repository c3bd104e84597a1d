"""A list of jobs that is longer than a page; a file of its own, since its jobs would slow the other tests down."""

import time
from pathlib import Path

from playwright.sync_api import Page, expect

from e2e.played_job import Play
from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import TargetKind
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import JobState
from rekindle_service.client import Client
from rekindle_service.config.home import Home, new_job_id
from rekindle_service.jobs.submitter import new_job
from rekindle_service.store import Store
from rekindle_service.store.mutations import insert


def test_the_server_turns_the_pages(page: Page, home: Path) -> None:
    fill_list(home, "turned", 53)
    page.goto("/?q=turned")
    rows = page.locator("#found tr")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Older").click()
    expect(page.locator("#found .job-name")).to_have_text(["turned 3", "turned 2", "turned 1"])
    assert "cursor=" in page.url
    page.reload()
    expect(rows).to_have_count(3)
    page.go_back()
    expect(rows).to_have_count(50)


def test_the_sections_stay_live_with_two_thousand_jobs(page: Page, client: Client, home: Path, play: Play) -> None:
    fill_list(home, "job", 1_900)
    running = play("runs", ranks=1)
    waiting = fill_list(home, "job", 100, after=running.id)
    running.begin_attempt()
    page.goto("/")
    heads = page.locator("#jobs h2:visible")
    expect(heads).to_have_text(["Running 1", "Next to start 20 of 100", "Done"])
    for section in ("#next", "#done"):
        expect(page.locator(f"{section} tr")).to_have_count(20)
    page.evaluate("globalThis.loadedOnce = true")
    running.report(0, step=250)
    expect(page.locator("#running tr")).to_contain_text("step 250 / 1,000")
    client.cancel(waiting[0])
    expect(page.locator("#done tr").first).to_contain_text(f"#{client.job(waiting[0])['number']}")
    expect(heads).to_have_text(["Running 1", "Next to start 20 of 99", "Done"])
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("#next tr")).to_have_count(99)
    expect(page.locator("#done tr")).to_have_count(200)
    running.end(JobState.FAILED, Outcome(OutcomeClass.USER_ERROR, "no such label"))
    expect(page.locator("#needs-you tr").first).to_contain_text("no such label")
    expect(page.locator("#running tr")).to_have_count(0)
    assert page.evaluate("globalThis.loadedOnce") is True


def fill_list(home: Path, name: str, count: int, *, after: str | None = None) -> list[str]:
    """Rows and nothing else, in one transaction: jobs that were cancelled before they began, or that wait for one."""
    store = Store(Home(home).database)
    state = {"state": JobState.CANCELLED, "ended_at": time.time()} if after is None else {"state": JobState.QUEUED}
    jobs = [
        new_job(
            new_job_id(),
            JobSpec(
                f"{name} {number}", TargetKind.RECIPE, "rl", "python", device="cpu", after=[after] if after else []
            ),
            created_at=time.time(),
            **state,
        )
        for number in range(1, count + 1)
    ]
    with store.writing() as session:
        insert(session, jobs)
    store.close()
    return [job.id for job in jobs]
