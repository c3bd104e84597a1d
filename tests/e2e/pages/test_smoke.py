"""Each page once, on real data and on one server: the browser tests of the short tier."""

from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from e2e.played_job import Play, PlayedJob
from e2e.serve_process import ServeProcess
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import JobState
from rekindle_service.client import Client, answers
from snapshot_files import write_snapshot

pytestmark = pytest.mark.short

_RENDERED = 120_000  # ms; Swagger UI takes seconds of a core for the whole document


@pytest.fixture
def job(play: Play) -> PlayedJob:
    job = play("digits")
    job.begin_attempt()
    return job


@pytest.fixture
def experiment(client: Client, tmp_path: Path) -> answers.Experiment:
    (tmp_path / "train.py").write_text("")
    base = {"script": str(tmp_path / "train.py"), "device": "cpu", "hold": True}
    return client.submit_experiment({"name": "rates", "base": base, "matrix": {"--lr": list(range(12))}})


def test_a_page_requested_without_a_session_is_shown_after_signing_in(
    visitor: BrowserContext, server: ServeProcess, job: PlayedJob
) -> None:
    stranger = visitor.new_page()
    whole = f"{server.url}/jobs/{job.id}?from=mail#log/0/stdout/1/0"
    stranger.goto(whole)
    stranger.get_by_label("Access token").fill(server.token)
    stranger.get_by_role("button", name="Sign in").click()
    stranger.wait_for_url(whole)
    expect(stranger.get_by_role("heading", name="digits")).to_be_visible()


def test_a_job_its_progress_and_its_slots_appear_without_reload(
    page: Page, empty_list: None, client: Client, play: Play
) -> None:
    page.goto("/")
    expect(page.locator("#nothing-yet")).to_contain_text("rekindle submit train.py")
    expect(page.locator("#nothing-yet")).to_contain_text("rekindle demo")
    expect(page.locator("#total-slots")).to_have_text("0 / 4")
    page.evaluate("globalThis.loadedOnce = true")
    job = play("digits-baseline")
    row = page.locator("#jobs").get_by_role("row", name="digits-baseline")
    expect(row.locator(".badge")).to_have_text("starting")
    expect(row.locator(".args")).to_contain_text(f"#{client.job(job.id)['number']}")
    job.begin_attempt()
    expect(row.locator(".badge")).to_have_text("running")
    expect(page.locator("#total-running")).to_have_text("1")
    expect(page.locator("#total-slots")).to_have_text("2 / 4")
    expect(page.locator("#slots .part")).to_have_text(["digits-baseline · 2", "free · 2"])
    expect(page.locator(".slots-title")).to_have_text("4 CPU slots: 2 in use")
    for rank in (0, 1):
        job.report(rank, step=250)
    expect(row).to_contain_text("step 250 / 1,000")
    expect(row.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "25")
    job.end(
        JobState.FAILED, Outcome(OutcomeClass.USER_ERROR, "ValueError: no such label", rank=1, file="train.py", line=42)
    )
    expect(row.locator(".badge")).to_have_text("failed")
    expect(row).to_contain_text("ValueError: no such label")
    expect(row).to_contain_text("(rank 1, train.py:42)")
    expect(page.locator("#needs-you tr")).to_have_count(1)
    expect(page).to_have_title("1 needs you · Jobs · rekindle")
    assert page.evaluate("globalThis.loadedOnce") is True


def test_ranks_report_live_and_choosing_one_shows_its_log(page: Page, job: PlayedJob) -> None:
    page.goto(f"/jobs/{job.id}")
    job.write(b"words of rank 0\n", rank=0)
    job.write(b"words of rank 1\n", rank=1)
    expect(page.locator("#log-lines")).to_have_text("words of rank 0")
    job.report(1, step=77)
    row = page.locator("#ranks tr").nth(1)
    expect(row).to_contain_text("77 / 1,000")
    expect(row).to_contain_text("words of rank 1")
    page.get_by_role("button", name="Show the log of rank 1").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#log-lines")).to_have_text("words of rank 1")
    expect(page.get_by_label("Rank", exact=True)).to_have_value("1")
    job.write(b"and more\n", rank=1)
    expect(page.locator("#log-lines .log-line")).to_have_text(["words of rank 1", "and more"])


def test_the_log_continues_with_the_next_attempt_and_earlier_ones_can_be_chosen(page: Page, job: PlayedJob) -> None:
    job.write(b"of the first\n")
    page.goto(f"/jobs/{job.id}")
    expect(page.locator("#log-follow")).to_have_text("Following")
    expect(page.locator("#log-lines")).to_have_text("of the first")
    job.begin_attempt(resumed_from_step=10)
    job.write(b"of the second\n")
    expect(page.locator("#log-lines .log-line")).to_have_text(["of the first", "of the second"])
    expect(page.locator("#log-lines .log-divider")).to_have_text("attempt 2")
    page.get_by_label("Attempt", exact=True).select_option("1")
    expect(page.locator("#log-lines .log-line")).to_have_text(["of the first"])


def test_a_clone_is_filled_in_except_for_its_secrets(page: Page, client: Client, job: PlayedJob) -> None:
    request = {
        "recipe": "rl",
        "name": "first",
        "args": ["--epochs", "3", "--lr=0.5", "two words", "more"],
        "env": {"API_KEY": "top-secret"},
        "after": [job.id],
        "priority": 4,
        "snapshot": {"every_steps": 9},
    }
    first = client.submit(request)
    page.goto(f"/submit?clone={first['id']}")
    note = page.locator("#clone-note")
    expect(note).to_contain_text("Filled in from job first")
    expect(note).not_to_contain_text("Continue job")  # it has left nothing to continue from
    expect(note).to_contain_text("The values of API_KEY are secret and were not copied")
    assert "top-secret" not in page.content()
    expect(page.get_by_label("Arguments")).to_have_value("'two words' more")
    page.get_by_text("Options of the recipe").click()
    expect(page.get_by_label("--lr", exact=True)).to_have_value("0.5")
    page.get_by_role("button", name="Submit the job").click()
    page.wait_for_url("**/jobs/*")
    second = client.job(page.url.rpartition("/")[2])
    assert second["id"] != first["id"]
    assert second["args"] == ["--epochs", "3", "--lr", "0.5", "two words", "more"]
    assert (second["name"], second["priority"]) == ("first", 4)


def test_an_experiment_shows_its_jobs(page: Page, experiment: answers.Experiment) -> None:
    page.goto(f"/experiments/{experiment['id']}")
    expect(page.locator("#experiment-name")).to_have_text("rates")
    expect(page.locator("#experiment-states")).to_have_text("12 queued")
    expect(page.locator("#results-body tr")).to_have_count(12)


def test_many_jobs_are_compared_each_in_a_colour_of_its_own(page: Page, experiment: answers.Experiment) -> None:
    ids = ",".join(trial["job"] for trial in experiment["trials"])
    page.goto(f"/compare?jobs={ids}")
    expect(page.locator("#compared-jobs th")).to_have_count(13)
    rates = page.locator("#parameters tr").filter(has_text="--lr").locator("td")
    expect(rates).to_have_text([str(rate) for rate in range(12)])
    colours = page.locator("#compared-jobs .swatch").evaluate_all(
        "all => new Set(all.map((each) => getComputedStyle(each).backgroundColor)).size"
    )
    assert colours == 12
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_the_machine_is_shown_now_and_over_time(page: Page, play: Play) -> None:
    play("holder", ranks=2).begin_attempt()
    page.goto("/")
    page.get_by_role("link", name="Machine").click()
    figures = page.locator("#machine-figures")
    for words in ("CPU", "Memory", "Job disk", "free of"):
        expect(figures).to_contain_text(words)
    held = page.locator("#devices tr").filter(has_text="holder")
    expect(held).to_have_count(2)
    expect(page.locator("#devices tr").filter(has_text="free")).to_have_count(2)
    expect(page.locator("#history-charts .plot[aria-description^='1 curve of']")).to_have_count(3)
    expect(page.locator("#topology")).to_be_hidden()
    held.first.get_by_role("link").click()
    page.wait_for_url("**/jobs/*")


def test_the_disk_is_shown_by_owner_and_by_job(page: Page, play: Play) -> None:
    job = play("kept", ranks=1)
    write_snapshot(job.run_dir.snapshots, 10)
    page.goto("/disk")
    expect(page.locator("#owners tr", has_text="no person")).to_have_count(1)
    expect(page.locator("#jobs tr", has_text="kept")).to_have_count(1)
    page.get_by_role("button", name="Show what would be removed").click()
    expect(page.locator("#plan-sentence")).to_have_text("Nothing would be removed.")


def test_a_route_is_found_read_and_tried_out_with_the_session(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Go to").fill("rest api")
    expect(page.locator("dialog.palette").get_by_role("option")).to_have_count(1)
    page.keyboard.press("Enter")
    expect(page).to_have_url("/docs/api")
    page.locator("#operations-tag-access").click(timeout=_RENDERED)
    route = page.locator(".opblock", has=page.locator("[data-path='/api/v1/me']"))
    route.locator(".opblock-summary-control").click(timeout=_RENDERED)
    route.get_by_role("button", name="Execute").click(timeout=_RENDERED)
    expect(route.locator(".live-responses-table")).to_contain_text('"person": "root"', timeout=_RENDERED)
