"""The page of one job in a browser."""

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from e2e.watcher import Watcher
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle_service.states import JobState

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def job(play: Callable[..., PlayedJob]) -> PlayedJob:
    job = play("digits", args=["--data", HOSTILE], env={"WANDB_API_KEY": "secret-value"})
    job.begin_attempt()
    return job


@pytest.fixture
def job_page(page: Page, server: ServeProcess, job: PlayedJob) -> Page:
    page.goto(f"{server.url}/jobs/{job.id}")
    expect(page.locator("#job-state")).to_have_text("running")
    page.evaluate("globalThis.loadedOnce = true")
    return page


def test_a_crash_and_the_recovery_are_told_live(job_page: Page, job: PlayedJob) -> None:
    killed = Outcome(OutcomeClass.SIGNAL, "rank 1 was killed by SIGKILL", rank=1, signal="SIGKILL")
    job.end_attempt(killed, last_step=120)
    job.retry_in(3600)
    banner = job_page.locator("#banner")
    expect(banner).to_contain_text("Recovering: next try in 59 min")
    expect(banner).to_contain_text("rank 1 was killed by SIGKILL")
    job.begin_attempt(resumed_from_step=100)
    expect(job_page.locator("#job-state")).to_have_text("running")
    expect(banner).to_be_hidden()
    story = job_page.locator("#attempts li")
    expect(story).to_have_count(2)
    expect(story.nth(0)).to_contain_text("went on from step 100")
    expect(story.nth(1)).to_contain_text("reached step 120; 20 steps done again")
    expect(job_page.locator("#timeline [data-kind=lost]")).to_have_attribute(
        "title", re.compile(r"attempt 1: done again")
    )
    assert job_page.evaluate("globalThis.loadedOnce") is True


def test_ranks_report_live_and_choosing_one_shows_its_log(job_page: Page, job: PlayedJob) -> None:
    job.write(b"words of rank 0\n", rank=0)
    job.write(b"words of rank 1\n", rank=1)
    expect(job_page.locator("#log-lines")).to_have_text("words of rank 0")
    job.report(1, step=77)
    row = job_page.locator("#ranks tr").nth(1)
    expect(row).to_contain_text("77 / 1,000")
    expect(row).to_contain_text("words of rank 1")
    job_page.get_by_role("button", name="Show the log of rank 1").focus()
    job_page.keyboard.press("Enter")
    expect(job_page.locator("#log-lines")).to_have_text("words of rank 1")
    expect(job_page.get_by_label("Rank", exact=True)).to_have_value("1")
    job.write(b"and more\n", rank=1)
    expect(job_page.locator("#log-lines .log-line")).to_have_text(["words of rank 1", "and more"])


def test_charts_draw_each_attempt_and_grow(job_page: Page, job: PlayedJob) -> None:
    for step in range(1, 31):
        job.metric(step, **{"loss": 1 / step, HOSTILE: 1.0, "val/accuracy": step / 100})
    job.end_attempt(Outcome(OutcomeClass.COMM, "connection lost"), last_step=30)
    job.begin_attempt(resumed_from_step=20)
    for step in range(21, 41):
        job.metric(step, loss=1 / step)
    loss = job_page.locator(".chart").filter(has_text="loss")
    expect(loss.locator(".latest")).to_contain_text("at step 40")
    expect(loss.locator(".scatterlayer .trace")).to_have_count(3)  # two attempts, and the tail that was done again
    expect(loss.locator("svg").get_by_text("attempt 2")).to_be_visible()
    expect(job_page.locator("#metric-picker label")).to_have_text(["loss", "val/accuracy", HOSTILE])
    job_page.get_by_role("checkbox", name=HOSTILE).check()
    expect(job_page.locator(".chart:visible")).to_have_count(3)
    assert job_page.locator("main img").count() == 0


def test_cancelling_asks_first_and_then_tells_the_keeper(job_page: Page, job: PlayedJob) -> None:
    job_page.get_by_role("button", name="Cancel").click()
    dialog = job_page.get_by_role("dialog", name="Cancel this job?")
    expect(dialog).to_contain_text("digits")
    dialog.get_by_role("button", name="Keep it as it is").click()
    expect(dialog).to_be_hidden()
    assert job.wanted() == "run"
    job_page.get_by_role("button", name="Cancel").click()
    dialog.get_by_role("button", name="Cancel the job").click()
    expect(job_page.locator("#banner")).to_contain_text("Cancelling")
    until(lambda: job.wanted() == "cancel", "the keeper is asked to cancel")
    job.end(JobState.CANCELLED, Outcome(OutcomeClass.CANCELLED, "cancelled on request"))
    expect(job_page.locator("#job-state")).to_have_text("cancelled")
    expect(job_page.get_by_role("button", name="Resume")).to_be_visible()


def test_the_configuration_tells_names_but_no_secrets(job_page: Page, job: PlayedJob) -> None:
    configuration = job_page.locator("#configuration")
    expect(configuration).to_contain_text("WANDB_API_KEY")
    expect(configuration).to_contain_text(HOSTILE)
    assert "secret-value" not in job_page.content()


def test_snapshots_are_listed_when_an_attempt_has_left_them(job_page: Page, job: PlayedJob) -> None:
    expect(job_page.locator("#snapshots-empty")).to_be_visible()
    job.snapshot(40, score={"by": "accuracy", "value": 0.9})
    job.report(0, step=50, snapshot_cadence="every 42 steps (auto: …)")
    job.end_attempt(Outcome(OutcomeClass.COMM, "connection lost"), last_step=50, durable_step=40)
    expect(job_page.locator("#snapshots tr")).to_contain_text("verified, best (0.9)")
    expect(job_page.locator("#snapshots-cadence")).to_have_text("Taken every 42 steps (auto: …).")
    job.begin_attempt(resumed_from_step=40)
    expect(job_page.locator("#figures")).to_contain_text("step 40")


def test_a_killed_server_is_survived_without_reload(
    job_page: Page, job: PlayedJob, server: ServeProcess, watcher: Watcher
) -> None:
    watcher.expect("net::ERR_")
    job.write(b"before\n")
    expect(job_page.locator("#log-lines")).to_have_text("before")
    server.kill()
    note = job_page.locator("#connection")
    expect(note).to_have_attribute("data-state", "reconnecting")
    job.write(b"meanwhile\n")
    job.report(0, step=500)
    server.start()
    expect(note).to_have_text("Live")
    expect(job_page.locator("#log-lines .log-line")).to_have_text(["before", "meanwhile"])
    expect(job_page.locator("#ranks tr").first).to_contain_text("500 / 1,000")
    job.write(b"after\n")
    expect(job_page.locator("#log-lines .log-line")).to_have_text(["before", "meanwhile", "after"])
    assert job_page.evaluate("globalThis.loadedOnce") is True


def test_tabs_share_one_stream_and_each_hears_its_own_job(
    job_page: Page, job: PlayedJob, server: ServeProcess, play: Callable[..., PlayedJob]
) -> None:
    other = play("other", ranks=1)
    other.begin_attempt()
    second = job_page.context.new_page()
    second.goto(f"{server.url}/jobs/{other.id}")
    expect(second.locator("#job-state")).to_have_text("running")
    job.write(b"of the first\n")
    other.write(b"of the second\n")
    expect(job_page.locator("#log-lines")).to_have_text("of the first")
    expect(second.locator("#log-lines")).to_have_text("of the second")
    second.close()
    job.write(b"still heard\n")
    expect(job_page.locator("#log-lines .log-line")).to_have_text(["of the first", "still heard"])


def test_a_job_that_is_not_there_is_said_to_be_gone(page: Page, server: ServeProcess, watcher: Watcher) -> None:
    watcher.expect("404")
    page.goto(f"{server.url}/jobs/nosuchjob0")
    expect(page.get_by_role("heading", name="This job is not here")).to_be_visible()
    page.get_by_role("link", name="All jobs").click()
    expect(page.locator("#connection")).to_have_text("Live")
