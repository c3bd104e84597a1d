"""The page of an experiment in a browser; what its jobs measure is played by the test."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from e2e.watcher import Watcher
from rekindle.contract.files import append_line
from rekindle.contract.locks import ExclusiveLock
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.run_dir.rank_records import MetricPoint
from rekindle.contract.states import JobState
from rekindle_service.client import Client, answers
from rekindle_service.config.home import Home
from rekindle_service.config.settings import Settings
from rekindle_service.store import Store

_HOSTILE = "<img src=x onerror=alert(1)> {{7*7}}"


@pytest.fixture
def experiment(client: Client, tmp_path: Path) -> Iterator[answers.Experiment]:
    """Two jobs that never start by themselves, each waits for a job that is held; deleted unless the test does it."""
    (tmp_path / "train.py").write_text("")
    base = {"script": str(tmp_path / "train.py"), "device": "cpu"}
    idle = client.submit({**base, "name": "idle", "hold": True})
    yield client.submit_experiment(
        {
            "name": _HOSTILE,
            "base": {**base, "after": [idle["id"]]},
            "matrix": {"--note": ["plain", _HOSTILE]},
            "measure": ["loss", {"metric": "loss", "relative_to": {"--note": "plain"}}],
        }
    )
    for each in list(client.experiments()):
        client.delete_experiment(each["id"])


def test_an_experiment_shows_table_curves_and_machine_live(
    experiment: answers.Experiment, page: Page, home: Path
) -> None:
    page.goto("/")
    link = page.locator("#experiment-links a")
    expect(link).to_have_text(_HOSTILE)
    expect(page.locator("#experiment-links")).to_contain_text("0 of 2")
    link.click()
    expect(page.locator("#experiment-name")).to_have_text(_HOSTILE)
    expect(page.locator("#experiment-states")).to_have_text("2 queued")
    play(home, experiment)
    rows = page.locator("#results-body tr")
    expect(rows.nth(0).locator(".value")).to_have_text(["2", "1", "\N{EN DASH}"])
    expect(rows.nth(1).locator(".value")).to_have_text(["1 (best)", "0.5 (best)", "\N{EN DASH}"])
    expect(rows.nth(1)).to_contain_text(_HOSTILE)
    expect(rows.locator(".badge")).to_have_text(["failed", "succeeded"])
    expect(page.locator("#curve-charts figcaption > bdi")).to_have_text(["loss"])
    expect(page.locator("#curve-charts .latest")).to_contain_text("min 1 at step 2, --note <img")
    expect(page.get_by_label("Chart of loss")).to_have_attribute(
        "aria-description", re.compile(r"^2 curves of 4 points")
    )
    expect(page.locator("#origin")).to_contain_text("cores")
    expect(page.locator("#origin")).to_contain_text("torch")
    assert page.locator("main img, main script").count() == 0


def test_the_rows_are_arranged_and_the_experiment_is_found_rerun_cancelled_and_deleted(
    experiment: answers.Experiment, page: Page, watcher: Watcher, home: Path
) -> None:
    play(home, experiment)
    page.goto(f"/experiments/{experiment['id']}")
    rows = page.locator("#results-body tr")
    arrange_rows(page)
    rows.nth(0).locator("a").click()
    expect(page.locator("#job-state")).to_have_text("succeeded")
    page.get_by_role("link", name="Experiment", exact=True).click()
    expect(page.locator("#experiment-states")).to_have_text("1 failed, 1 succeeded")
    page.get_by_role("link", name="Experiments", exact=True).click()
    row = page.locator("#experiments tr")
    expect(row.locator("th")).to_have_text(_HOSTILE)
    expect(row).to_contain_text("1 failed")
    row.get_by_role("link", name="2 jobs").click()
    expect(page.locator("#found tr")).to_have_count(2)
    assert page.locator("main img, main script").count() == 0
    page.goto("/")
    result = page.locator("#done .result")
    expect(result).to_have_text(re.compile(rf"^best loss 1 with .*{re.escape(_HOSTILE)}; all 1 to 2$"))
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390, "the best result is broken into lines"
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(f"/experiments/{experiment['id']}")
    watcher.expect("404")  # a request for curves that is under way while the experiment is deleted
    act_on_the_experiment(page)


def arrange_rows(page: Page) -> None:
    """Sort, hide and colour rows; a link shows the same."""
    rows, chart = page.locator("#results-body tr"), page.get_by_label("Chart of loss")
    expect(page.locator("#parallel .row-line")).to_have_count(2)
    expect(page.locator("#scatter circle")).to_have_count(2)
    expect(page.locator("#scatter .best-point title")).to_contain_text(_HOSTILE)
    page.get_by_role("button", name="loss", exact=True).click()
    expect(rows.nth(0)).to_contain_text(_HOSTILE)
    expect(page.locator("#results-head [aria-sort]")).to_have_text("loss")
    rows.nth(1).get_by_role("button").click()
    expect(chart).to_have_attribute("aria-description", re.compile("^1 curve "))
    page.get_by_label("Colour by").select_option("--note")
    page.reload()
    expect(rows.nth(0)).to_contain_text(_HOSTILE)
    expect(rows.nth(1).get_by_role("button")).to_have_attribute("aria-pressed", "false")
    expect(page.get_by_label("Colour by")).to_have_value("--note")
    expect(chart).to_have_attribute("aria-description", re.compile("^1 curve "))
    page.get_by_role("button", name="Show all").click()
    expect(chart).to_have_attribute("aria-description", re.compile("^2 curves "))
    choose_a_range(page)


def choose_a_range(page: Page) -> None:
    """With keys and with the mouse; a link shows the same."""
    chart, axis = page.get_by_label("Chart of loss"), page.get_by_role("slider", name="Range of loss", exact=True)
    axis.press("ArrowDown")
    expect(page.locator("#hidden-count")).to_have_text("1 row is hidden.")
    expect(axis).to_be_focused()
    expect(axis).to_have_attribute("aria-valuetext", "1 to 1")
    page.reload()
    expect(chart).to_have_attribute("aria-description", re.compile("^1 curve "))
    expect(page.locator("#results-body button:disabled")).to_have_count(1)
    axis.press("Escape")
    expect(chart).to_have_attribute("aria-description", re.compile("^2 curves "))
    axis.scroll_into_view_if_needed()
    box = axis.locator(".axis-target").bounding_box()
    assert box is not None
    middle, top = box["x"] + box["width"] / 2, box["y"]
    page.mouse.move(middle, top)
    page.mouse.down()
    page.mouse.move(middle, top + box["height"] / 2, steps=3)
    page.mouse.up()
    expect(axis).to_have_attribute("aria-valuetext", "2 to 2")
    expect(chart).to_have_attribute("aria-description", re.compile("^1 curve "))
    page.mouse.click(middle, top + box["height"] / 2)
    expect(chart).to_have_attribute("aria-description", re.compile("^2 curves "))


def act_on_the_experiment(page: Page) -> None:
    """Re-run what failed, cancel it, and delete everything; then start another one."""
    states, yes = page.locator("#experiment-states"), page.locator("#confirm-yes")
    for verb, result in (("Re-run failed", "1 queued, 1 succeeded"), ("Cancel", "1 cancelled, 1 succeeded")):
        page.get_by_role("button", name=f"{verb} {_HOSTILE}").click()
        expect(page.locator("#confirm-title")).to_have_text(f"{verb}: 1 job?")
        yes.click()
        expect(states).to_have_text(result)
    page.get_by_role("button", name=f"Delete {_HOSTILE}").click()
    yes.click()
    page.wait_for_url("**/experiments")
    expect(page.locator("#nothing-yet")).to_be_visible()
    page.get_by_role("button", name="Start uneven").click()
    page.get_by_label("Arguments").fill("'--epochs")
    yes.click()
    expect(page.locator("#confirm-error")).not_to_be_empty()
    page.get_by_label("Arguments").fill("--epochs 2")
    with page.expect_request("**/api/v1/experiments") as request:
        page.route("**/api/v1/experiments", lambda route: route.fulfill(status=201, json={"id": "started"}))
        page.route("**/experiments/started", lambda route: route.fulfill(body="<title>started</title>"))
        yes.click()
    assert request.value.post_data_json == {"builtin": "uneven", "size": "small", "args": ["--epochs", "2"]}
    page.wait_for_url("**/experiments/started")


def play(home: Path, experiment: answers.Experiment) -> None:
    """The first job of the experiment fails, the second succeeds with half of its loss."""
    first, second = (trial["job"] for trial in experiment["trials"])
    play_job(home, first, [4.0, 2.0], JobState.FAILED)
    play_job(home, second, [5.0, 1.0], JobState.SUCCEEDED)


def play_job(home: Path, job_id: str, losses: list[float], state: JobState) -> None:
    """The job runs and ends, with this metric."""
    run_dir = Home(home).run_dir(job_id)
    metrics = run_dir.attempt(1).rank(0).metrics
    metrics.parent.mkdir(parents=True)
    for step, loss in enumerate(losses, start=1):
        append_line(metrics, MetricPoint(step=step, epoch=0, at=time.time(), values={"loss": loss}).to_json())
    store = Store(Home(home).database)
    with_lock = ExclusiveLock(run_dir.keeper_lock)
    journal = Journal(run_dir.journal)
    journal.write(
        RecordType.ATTEMPT_STARTED,
        attempt=1, run=1, world_size=1, devices=["cpu:0"],
    )  # fmt: skip
    moved = store.transition(job_id, JobState.STARTING, expected={JobState.QUEUED}, reason="test", run=1)
    assert moved is not None
    with Client.from_home(Settings(home=home)) as client:  # the server has jobs in memory as it has changed them itself
        client.request("PATCH", f"/jobs/{job_id}", json={"note": "played"})
    journal.write(RecordType.JOB_ENDED, run=1, state=state, reason="done", outcome=None)
    store.close()
    with_lock.release()
