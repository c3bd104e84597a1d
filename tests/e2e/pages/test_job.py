"""The page of one job in a browser."""

import ast
import math
import re
import shlex
import sys
import time
from pathlib import Path

import pytest
from playwright.sync_api import APIResponse, Page, Route, expect

from digest_files import DigestWriter
from e2e.played_job import Play, PlayedJob
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from e2e.watcher import Watcher, found_by_axe
from rekindle.contract.files import write_json
from rekindle.contract.job_options import Replay
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.digest_records import LayerRecord, StepRecord, TensorKind
from rekindle.contract.run_dir.script_files import Checkpoint, Observations
from rekindle.contract.run_dir.snapshot_dir import SnapshotScore
from rekindle.contract.run_dir.step_records import StepPhase
from rekindle.contract.states import JobState
from rekindle_service.client import Client
from rekindle_service.jobs.packaging.code_manifest import take_manifest
from step_files import lockstep, write_steps

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def job(play: Play) -> PlayedJob:
    job = play("digits", args=["--data", HOSTILE], env={"WANDB_API_KEY": "secret-value"})
    job.begin_attempt()
    return job


@pytest.fixture
def job_page(page: Page, job: PlayedJob) -> Page:
    page.goto(f"/jobs/{job.id}")
    expect(page.locator("#job-state")).to_have_text("running")
    page.evaluate("globalThis.loadedOnce = true")
    return page


def test_a_job_without_progress_is_stalled_in_headline_and_title_and_its_speed_is_withdrawn(
    job: PlayedJob, job_page: Page
) -> None:
    job.report(0, step=40)
    figures = job_page.locator("#figures")
    expect(figures).to_contain_text("10.0 steps")
    job.stall("rank 0 waits in collective 31; rank 1 is still at train.py:41", since=time.time() - 12, left=18)
    expect(job_page.locator("#job-state")).to_have_text("stalled")
    expect(job_page.locator("#banner-title")).to_contain_text("Stalled for 1")
    expect(job_page.locator("#banner-sentence")).to_contain_text(
        "rank 0 waits in collective 31; rank 1 is still at train.py:41"
    )
    expect(job_page.locator("#banner-sentence")).to_contain_text("counts as hung in 1")
    expect(job_page).to_have_title(re.compile("stalled"))
    expect(figures).not_to_contain_text("10.0 steps")
    expect(figures).not_to_contain_text("min 36 s")
    job.stall(None)
    expect(job_page.locator("#job-state")).to_have_text("running")
    expect(figures).to_contain_text("10.0 steps")


def test_what_is_wrong_with_the_nodes_of_a_job_on_slurm_is_shown(page: Page, job: PlayedJob) -> None:
    """There is no Slurm here: what the server would say of it is added to its answer."""
    slurm = {"job_id": 17, "state": "RUNNING", "hosts": ["n1", "n2"], "excluded": {"n3": "no torch"}}
    slurm["reason"] = "The job uses 1 of its 2 nodes (n2: nothing has been heard of it for 16 seconds)."
    page.route(f"**/api/v1/jobs/{job.id}", lambda route: route.fulfill(json=route.fetch().json() | {"slurm": slurm}))
    page.route("**/api/v1/events?*", lambda route: route.abort())  # which would bring the job without it
    page.goto(f"/jobs/{job.id}")
    expect(page.locator("#banner-title")).to_have_text("Nodes need attention")
    expect(page.locator("#banner-sentence")).to_have_text(slurm["reason"])
    expect(page.locator("#figures")).to_contain_text("job 17 on n1, n2")
    expect(page.locator("#figures")).to_contain_text("n3: no torch")


def test_a_script_that_reports_nothing_shows_its_checkpoints_and_marked_estimates(page: Page, play: Play) -> None:
    job = play("plain")
    job.begin_attempt()
    path = f"{job.run_dir.code}/out/{HOSTILE}.pt"
    whole = Checkpoint(path, "torch", 1_200_000, time.time() - 60, 1, loaded=1)
    half = Checkpoint("/data/half.pt", "safetensors", 10, time.time(), 1, complete=False)
    write_json(
        job.run_dir.observed, Observations(1, False, [half, whole], estimated_step=120, estimated_epoch=3).to_json()
    )
    page.goto(f"/jobs/{job.id}")
    found = page.locator("#checkpoints li")
    expect(page.locator("#snapshots-empty")).to_have_attribute("hidden", "")
    expect(found).to_have_count(2)
    expect(found.nth(0)).to_contain_text("/data/half.pt")
    expect(found.nth(0)).to_contain_text("incomplete")
    expect(found.nth(1)).to_contain_text(f"out/{HOSTILE}.pt")
    expect(found.nth(1)).to_contain_text("1.2 MB · torch · attempt 1 · loaded by attempt 1")
    expect(page.locator("#figures")).to_contain_text("about 120 (estimate)")
    page.locator("#drain").click()
    expect(page.locator("#confirm-consequence")).to_contain_text("stopped by SIGTERM")
    expect(page.locator("#confirm-consequence")).to_contain_text(f"out/{HOSTILE}.pt")


def test_a_crash_and_the_recovery_are_shown_live(job_page: Page, job: PlayedJob) -> None:
    killed = Outcome(OutcomeClass.SIGNAL, "rank 1 was killed by SIGKILL", rank=1, signal="SIGKILL")
    job.end_attempt(killed, last_step=120)
    job.retry_in(3600)
    banner = job_page.locator("#banner")
    expect(banner).to_contain_text("Recovering: retry in 59 min")
    story = job_page.locator("#story")
    expect(story).to_contain_text("rank 1 was killed by SIGKILL")
    link = job_page.get_by_role("link", name="Last output of rank 1")
    link.focus()
    job.begin_attempt()
    expect(job_page.locator("#job-state")).to_have_text("running")
    expect(banner).to_be_hidden()
    expect(story).to_contain_text("Attempt 2 is running")
    expect(job_page.locator("#attempts li").nth(0)).not_to_contain_text("resumed")
    job.resume(100)
    expect(story).to_contain_text("Attempt 2 is running, resumed from step 100.")
    expect(link).to_be_focused()
    story.get_by_role("button", name="What happened to attempt 1").click()
    expect(story.get_by_role("heading", name="Attempt 1: SIGKILL in rank 1")).to_be_focused()
    attempts = job_page.locator("#attempts li")
    expect(attempts).to_have_count(2)
    expect(attempts.nth(0)).to_contain_text("resumed from the copy in memory of step 100")
    expect(story.get_by_role("heading", name="Recovered once, 20 steps replayed")).to_have_count(0)
    story.get_by_role("button", name="Back to the job as it is now").click()
    expect(story.get_by_role("heading", name="Recovered once, 20 steps replayed")).to_be_visible()
    expect(attempts.nth(1)).to_contain_text("reached step 120; 20 steps replayed")
    expect(job_page.locator("#timeline [data-kind=replayed]")).to_have_attribute(
        "title", re.compile(r"attempt 1: replayed")
    )
    drawn, explained = job_page.evaluate(
        """() => {
            const kinds = (nodes) => [...new Set([...nodes].map(({ dataset }) => dataset.kind))];
            const bar = document.querySelectorAll("#timeline span");
            return [kinds(bar), kinds(document.querySelectorAll("#time-parts tr"))];
        }"""
    )
    assert set(drawn) <= set(explained), "each colour that can be seen is explained"
    assert job_page.evaluate("globalThis.loadedOnce") is True


def test_charts_draw_each_attempt_and_grow(job_page: Page, job: PlayedJob) -> None:
    for step in range(1, 31):
        job.metric(step, **{"loss": 1 / step, HOSTILE: 1.0, "val/accuracy": step / 100})
    job.end_attempt(Outcome(OutcomeClass.COMM, "connection lost", rank=1), last_step=30)
    job.begin_attempt(resumed_from_step=20)
    for step in range(21, 41):
        job.metric(step, loss=1 / step)
    loss = job_page.locator(".chart").filter(has_text="loss")
    expect(loss.locator(".latest")).to_contain_text("at step 40")
    expect(loss.locator(".latest")).to_have_text("last 0.025 at step 40 · min 0.025 at step 40")
    accuracy = job_page.locator(".chart").filter(has_text="val/accuracy")
    expect(accuracy.locator(".latest")).to_have_text("last 0.3 at step 30 · max 0.3 at step 30")
    # two attempts, and the replayed tail
    summary = "3 curves of 51 points, step 0 to 40, comm rank 1, \N{MINUS SIGN}10 steps"
    expect(loss.locator(".plot")).to_have_attribute("aria-description", summary)
    loss.locator(".plot").focus()
    for key in ("Home", *["ArrowRight"] * 30):
        job_page.keyboard.press(key)
    expect(loss.locator(".plot")).to_have_attribute(
        "aria-valuetext", re.compile("^step 30, comm rank 1, \N{MINUS SIGN}10 steps, ")
    )
    expect(job_page.locator("#metric-picker label")).to_have_text(["loss", "val/accuracy", HOSTILE])
    expect(job_page.locator("#charts .chart:visible")).to_have_count(3)
    job_page.get_by_label("X axis").select_option("time")
    expect(loss.locator(".plot")).to_have_attribute("aria-description", re.compile(r"points, \d\d:\d\d"))
    job_page.goto(job_page.url.partition("#")[0])
    expect(loss.locator(".plot")).to_have_attribute("aria-description", re.compile(r"points, \d\d:\d\d"))
    assert job_page.locator("main img").count() == 0


def test_cancelling_asks_first_and_then_notifies_the_keeper(job_page: Page, job: PlayedJob) -> None:
    job_page.get_by_role("button", name="Cancel").click()
    dialog = job_page.get_by_role("dialog", name="Cancel this job?")
    expect(dialog).to_contain_text("digits")
    dialog.get_by_role("button", name="Back").click()
    expect(dialog).to_be_hidden()
    assert job.wanted() == "run"
    job_page.get_by_role("button", name="Cancel").click()
    dialog.get_by_role("button", name="Cancel the job").click()
    expect(job_page.locator("#banner")).to_contain_text("Cancelling")
    until(lambda: job.wanted() == "cancel", "the keeper is asked to cancel")
    job.end(JobState.CANCELLED, Outcome(OutcomeClass.CANCELLED, "cancelled on request"))
    expect(job_page.locator("#job-state")).to_have_text("cancelled")
    expect(job_page.locator("#banner")).to_be_hidden()
    expect(job_page.get_by_role("button", name="Resume")).to_be_visible()


def test_priority_and_faults_are_chosen_and_errors_shown_in_the_dialog(
    job_page: Page, job: PlayedJob, watcher: Watcher
) -> None:
    job_page.get_by_role("button", name="Priority 0").click()
    job_page.get_by_label("Priority", exact=True).fill("7")
    job_page.keyboard.press("Enter")
    expect(job_page.get_by_role("button", name="Priority 7")).to_be_visible()
    job_page.get_by_role("button", name="Inject a fault").click()
    dialog = job_page.get_by_role("dialog", name="Inject a fault?")
    expect(dialog.locator("[name=rank]")).to_be_visible()
    dialog.locator("[name=fault]").select_option("corrupt-snapshot")
    expect(dialog.locator("[name=rank]")).to_be_hidden()
    watcher.expect("409")
    dialog.get_by_role("button", name="Inject the fault").click()
    expect(dialog.get_by_role("alert")).to_contain_text("has no snapshot to corrupt yet")
    dialog.locator("[name=fault]").select_option("kill")
    dialog.locator("[name=rank]").select_option("1")
    with job_page.expect_response(lambda response: response.url.endswith("/chaos")) as answer:
        dialog.get_by_role("button", name="Inject the fault").click()
    assert answer.value.status == 202
    assert answer.value.request.post_data_json == {"fault": "kill", "rank": 1}
    expect(dialog).to_be_hidden()
    expect(job_page.get_by_role("link", name="Clone")).to_have_attribute("href", f"/submit?clone={job.id}")


def test_a_failed_job_opens_at_the_culprit_and_resumes_from_the_snapshot_that_is_chosen(
    job_page: Page, job: PlayedJob
) -> None:
    job.snapshot(40)
    job.snapshot(60)
    failed = job.raise_in(1, "ValueError", f"{HOSTILE}\nsecond line", source="a = 1\nb = 2\nraise ValueError\n", line=3)
    job.end_attempt(failed, last_step=70, snapshot_step=60)
    job.write(b"\nwritten later\n", rank=1, stream="stderr")
    job.end(JobState.FAILED, failed)
    expect(job_page.get_by_role("button", name="Retry")).to_be_visible()
    story = job_page.locator("#story")
    expect(story.get_by_role("heading", name="ValueError in rank 1")).to_be_visible()
    expect(story.locator(".story-message")).to_have_text(f"{HOSTILE}\nsecond line")
    expect(story.locator(".source-line[data-at]:visible")).to_have_text("raise ValueError")
    story.get_by_text("1 frame in libraries").click()
    expect(story.get_by_text("/lib/torch/nn.py:7")).to_be_visible()
    job_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    story.get_by_role("button", name="Copy").click()
    expect(story.locator("output")).to_have_text("Copied")
    assert "  > 3 raise ValueError" in job_page.evaluate("navigator.clipboard.readText()")
    edit = job_page.get_by_role("link", name="Edit and resubmit")
    expect(edit).to_have_attribute("href", f"/submit?clone={job.id}")
    job_page.reload()
    expect(job_page.get_by_label("Rank", exact=True)).to_have_value("1")
    expect(job_page.locator("#log-lines .marked")).to_have_text("Traceback (most recent call last):")
    job_page.get_by_label("Stream").select_option("stdout")
    story.get_by_role("link", name="Open in the log").click()
    expect(job_page.locator("#log-lines .marked")).to_have_text("Traceback (most recent call last):")
    job_page.get_by_label("Stream").select_option("stdout")
    job_page.get_by_role("link", name="Last output of rank 1", exact=True).click()
    expect(job_page.locator("#log-lines .marked")).to_have_text("written later")
    assert job_page.locator("main img").count() == 0
    job_page.get_by_role("tab", name="Snapshots").click()
    first = job_page.locator("#snapshots li").nth(1)
    first.get_by_role("button", name="Pin the snapshot of step 40").click()
    expect(first).to_contain_text("pinned")
    with job_page.expect_download() as saved:
        first.get_by_role("link", name="Download the snapshot of step 40").click()
    assert saved.value.suggested_filename.endswith("-step-40.zip")
    first.get_by_role("button", name="Resume from step 40").click()
    dialog = job_page.get_by_role("dialog", name="Resume from step 40?")
    dialog.get_by_role("button", name="Resume from here").click()
    expect(dialog).to_be_hidden()
    expect(job_page.locator("#job-state")).not_to_have_text("failed")
    expect(job_page.locator("#figures")).to_contain_text("step 40")


def test_after_the_same_exception_twice_the_primary_action_is_not_to_retry(job_page: Page, job: PlayedJob) -> None:
    failed = job.raise_in(1, "ValueError", "no label", source="raise ValueError\n", line=1)
    job.end_attempt(failed, last_step=3)
    job.begin_attempt()
    again = job.raise_in(0, "ValueError", "no label", source="raise ValueError\n", line=1)
    job.end_attempt(again, last_step=3)
    job.end(JobState.FAILED, again)
    story = job_page.locator("#story")
    expect(story).to_contain_text("The attempt before ended by the same exception at the same line.")
    expect(job_page.locator("main .primary:visible")).to_have_text(["Edit and resubmit", "Open in the log"])
    expect(job_page.get_by_role("button", name="Retry")).to_be_visible()


def test_an_ended_job_shows_its_best_values_the_faults_it_survived_and_how_to_run_it_again(
    job_page: Page, job: PlayedJob
) -> None:
    for step, accuracy in ((10, 0.5), (20, 0.9), (25, 0.99), (30, 0.7)):
        job.metric(step, **{"val/accuracy": accuracy, "step_time": 1 / step, HOSTILE: 1.0})
    job.snapshot(20, SnapshotScore("val/accuracy", 0.9))
    killed = Outcome(OutcomeClass.SIGNAL, "rank 1 was killed by SIGKILL", rank=1, signal="SIGKILL")
    job.end_attempt(killed, last_step=30, snapshot_step=20)
    expect(job_page.locator("#end-card")).to_be_hidden()
    job.begin_attempt(resumed_from_step=20)
    job.metric(30, **{"val/accuracy": 0.8})
    done = Outcome(OutcomeClass.SUCCESS, "Every rank finished.")
    job.end_attempt(done, last_step=30, snapshot_step=20)
    job.end(JobState.SUCCEEDED, done)
    card = job_page.locator("#end-card")
    expect(card).to_contain_text("val/accuracy 0.9 at step 20", timeout=10_000)
    expect(card).not_to_contain_text("0.99")  # its step was lost
    expect(card).not_to_contain_text("step_time")
    expect(card).to_contain_text("1 fault: SIGKILL; 10 steps replayed, ")
    expect(card.locator("code")).to_contain_text("rekindle submit")
    expect(card.locator("code")).to_contain_text(HOSTILE)
    expect(job_page.locator("#story")).to_be_hidden()
    expect(job_page.locator("#job-progress")).to_be_hidden()
    card.get_by_role("button", name="snapshot of step 20, the best").click()
    expect(job_page.locator("#snapshots li")).to_contain_text("Step 20")
    job_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    job_page.get_by_role("button", name="Copy the script and its arguments").click()
    expect(job_page.locator("#job-copied")).to_have_text("Copied")
    assert shlex.split(job_page.evaluate("navigator.clipboard.readText()")) == ["train.py", "--data", HOSTILE]
    assert job_page.locator("main img").count() == 0


def test_the_strip_explains_where_the_time_went_and_adds_up(job_page: Page) -> None:
    rows = job_page.locator("#time-parts tr")
    expect(rows.first).to_contain_text("training")
    rows.first.locator("th").focus()
    expect(job_page.locator("#time-meaning")).to_have_text("training: steps that count")
    expect(job_page.locator("#time-goodput")).to_contain_text("goodput")
    shares = [float(text.split()[0]) for text in rows.locator("td:last-child").all_text_contents()]
    assert 99 <= sum(shares) <= 100
    assert rows.count() == job_page.locator("#time-bar span").count()


def test_a_step_is_broken_down_for_the_slowest_rank(job: PlayedJob, job_page: Page) -> None:
    write_steps(job.run_dir, lockstep({}, {StepPhase.DATA: 0.16}))
    expect(job_page.locator("#step-summary")).to_contain_text("Input-bound: 63% of a step", timeout=15_000)
    expect(job_page.locator("#step-whole")).to_have_text("255 ms on rank 1, the slowest")
    rows = job_page.locator("#step-parts tr")
    assert rows.count() == job_page.locator("#step-bar span").count() == 5
    expect(rows.first).to_contain_text("data160 ms62.7 %")
    expect(rows.first).to_have_attribute("title", "rank 0: 0 ms\nrank 1: 160 ms")


def test_a_phone_shows_every_rank_and_an_empty_log_is_small(page: Page, play: Play) -> None:
    job = play("phone", ranks=8)
    job.begin_attempt()
    for rank in range(8):
        job.report(rank, step=100 + rank)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"/jobs/{job.id}")
    expect(page.locator("#ranks-grid .tile small")).to_have_text([str(100 + rank) for rank in range(8)])
    expect(page.locator("#ranks-table")).to_be_hidden()
    expect(page.locator("#log-empty")).to_be_visible()
    page.wait_for_function("document.getElementById('log').getBoundingClientRect().height < 160")  # some lines of text
    page.locator("#ranks-grid .tile").nth(7).click()
    job.write(b"words of rank 7\n", rank=7)
    expect(page.locator("#log-lines")).to_have_text("words of rank 7")
    assert page.locator("#log").bounding_box()["height"] > 300
    page.set_viewport_size({"width": 1280, "height": 844})
    expect(page.locator("#ranks-table")).to_be_visible()
    expect(page.locator("#ranks-grid")).to_be_hidden()


def test_a_request_is_copied_without_secrets_and_compared_with_another_jobs(job_page: Page, play: Play) -> None:
    other = play("other", args=["--lr", "0.5"])
    job_page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    copied = {}
    job_page.get_by_role("tab", name="Attempts").press("End")
    expect(job_page.locator("#configuration")).to_contain_text("WANDB_API_KEY")
    expect(job_page.locator("#configuration")).to_contain_text(HOSTILE)
    for what in ("command", "curl", "Python"):
        job_page.get_by_role("button", name=f"Copy as {what}").click()
        expect(job_page.locator("#copied")).to_have_text("Copied")
        copied[what] = job_page.evaluate("navigator.clipboard.readText()")
    assert shlex.split(copied["command"].replace("\\\n", " "))[-3:] == ["train.py", "--data", HOSTILE]
    assert "secret-value" not in "".join([job_page.content(), *copied.values()])
    body = ast.parse(copied["Python"])
    assert HOSTILE in [node.value for node in ast.walk(body) if isinstance(node, ast.Constant)]
    job_page.get_by_label("Compare with").focus()
    job_page.get_by_label("Compare with").select_option(other.id)
    expect(job_page).to_have_url(re.compile(rf"/compare\?jobs=\w+,{other.id}$"))
    lines = job_page.locator("main tbody tr")
    expect(lines.filter(has_text="--data").locator("td").first).to_have_text(HOSTILE)
    expect(lines.filter(has_text="--lr").locator("td").last).to_have_text("0.5")
    assert job_page.locator("main img").count() == 0


def test_a_job_that_its_page_deletes_is_reported_as_deleted(job_page: Page, job: PlayedJob, watcher: Watcher) -> None:
    watcher.expect("404")  # of what the page fetches meanwhile
    ending = Outcome(OutcomeClass.USER_ERROR, "boom", rank=0)
    job.end_attempt(ending, last_step=1)
    job.end(JobState.FAILED, ending)
    job_page.get_by_role("button", name="Delete", exact=True).click()
    job_page.get_by_role("button", name="Delete the job").click()
    expect(job_page.locator("#gone-sentence")).to_have_text("This job has been deleted, and its files.")


def test_what_counts_only_epochs_is_shown_at_its_epochs(job_page: Page, job: PlayedJob) -> None:
    for epoch in range(1, 5):
        job.metric(epoch, epoch=epoch, loss=1 / epoch)
    loss = job_page.locator(".chart").filter(has_text="loss")
    expect(loss.locator(".latest")).to_have_text("last 0.25 at epoch 4 · min 0.25 at epoch 4")
    expect(loss.locator(".plot")).to_have_attribute("aria-description", re.compile("epoch 0 to 4"))


def test_thousands_of_metrics_are_found_by_name_and_missing_values_reported(job_page: Page, job: PlayedJob) -> None:
    many = {f"layer{number}/norm": float(number) for number in range(1500)}
    for step, loss in enumerate([1.0, 1e308, -1e308, math.nan, math.inf, 0.5], start=1):
        job.metric(step, **{**many, "loss": loss if math.isfinite(loss) else None})
    loss = job_page.locator(".chart").filter(has_text="loss")
    expect(loss.locator(".latest")).to_contain_text("0.5 at step 6")
    expect(loss.locator(".warning")).to_have_text("2 not finite, the first at step 4")
    expect(loss.locator(".plot")).to_have_attribute("aria-description", re.compile("^1 curve of 4 points"))
    job_page.locator("#metric-chosen").click()
    expect(job_page.locator("#metric-picker label")).to_have_count(40)
    job_page.get_by_label("Find a metric").fill("layer1499")
    job_page.get_by_role("checkbox", name="layer1499/norm").check()
    expect(job_page.locator("#charts .chart:visible")).to_have_count(4)
    widths = "plots => plots.every(plot => plot.querySelector('canvas').width === plot.clientWidth)"
    until(lambda: job_page.locator(".chart:visible .plot").evaluate_all(widths), "each chart fits its place")
    job_page.get_by_label("Log scale").check()
    expect(loss.locator(".warning")).to_contain_text("1 not above 0")
    for axis, span in (("step", "step 0 to 6"), ("time", r"\d\d:\d\d.* to \d\d:\d\d")):
        job_page.get_by_label("X axis").select_option(axis)
        expect(loss.locator(".plot")).to_have_attribute("aria-description", re.compile(f"points, {span}"))
    job_page.get_by_label("Smoothing").fill("0.9")
    with job_page.expect_download() as table:
        job_page.get_by_role("button", name="Save loss as CSV").click()
    rows = Path(table.value.path()).read_text().splitlines()
    assert [row.split(",")[4] for row in rows] == ["value", "1", "1e+308", "-1e+308", "nan", "nan", "0.5"]
    with job_page.expect_download() as picture:
        job_page.get_by_role("button", name="Save loss as PNG").click()
    assert Path(picture.value.path()).read_bytes().startswith(b"\x89PNG")


def test_sixty_four_ranks_are_shown_as_tiles(page: Page, play: Play) -> None:
    job = play("wide", ranks=64)
    job.begin_attempt()
    for rank in range(64):
        job.report(rank, step=100 if rank != 17 else 40)
    job.write(b"words of rank 17\n", rank=17)
    page.goto(f"/jobs/{job.id}")
    expect(page.locator("#ranks-grid .tile")).to_have_count(64)
    expect(page.locator("#ranks-summary")).to_have_text("64 of 64 running, 60 steps apart")
    tile = page.get_by_role("button", name="Rank 17, running, step 40 / 1,000, 60 steps behind")
    tile.focus()
    page.keyboard.press("Enter")
    expect(tile).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#log-lines")).to_have_text("words of rank 17")
    page.get_by_label("Search text").fill("WORDS".lower())
    page.get_by_role("button", name="All ranks").click()
    page.get_by_role("button", name="rank 17 · stdout").click()
    expect(page.locator("#log-lines .marked")).to_have_text("words of rank 17")


def test_snapshots_are_listed_when_an_attempt_has_left_them(job_page: Page, job: PlayedJob) -> None:
    job_page.get_by_role("tab", name="Snapshots").click()
    expect(job_page.locator("#snapshots-empty")).to_be_visible()
    job.snapshot(40, SnapshotScore("accuracy", 0.9))
    job.report(0, step=50, snapshot_policy="every 42 steps (auto: …)")
    job.end_attempt(Outcome(OutcomeClass.COMM, "connection lost"), last_step=50, snapshot_step=40)
    expect(job_page.locator("#snapshots li")).to_contain_text("verified, best (0.9)")
    expect(job_page.locator("#snapshots-policy")).to_have_text("Taken every 42 steps (auto: …).")
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
    expect(note).to_have_text("Server unreachable")  # announced once; the seconds next to it are for the eye
    expect(job_page.locator(".connection-wait")).to_have_text(re.compile("retrying in [0-9]+ s|retrying …"))
    job.write(b"meanwhile\n")
    job.report(0, step=500)
    server.start()
    expect(note).to_have_text("Live")
    expect(job_page.locator("#log-lines .log-line")).to_have_text(["before", "meanwhile"])
    expect(job_page.locator("#ranks tr").first).to_contain_text("500 / 1,000")
    job.write(b"after\n")
    expect(job_page.locator("#log-lines .log-line")).to_have_text(["before", "meanwhile", "after"])
    assert job_page.evaluate("globalThis.loadedOnce") is True


def test_an_answer_that_comes_late_does_not_undo_a_newer_one(job_page: Page, job: PlayedJob) -> None:
    late: list[tuple[Route, APIResponse]] = []

    def hold(url: str) -> None:
        job_page.route(url, lambda route: late.append((route, route.fetch())), times=1)

    def release() -> None:
        route, answer = late.pop()
        route.fulfill(response=answer)
        job_page.evaluate("fetch('/healthz').then((answer) => answer.text())")

    job.snapshot(40)
    hold("**/snapshots")
    job.end_attempt(Outcome(OutcomeClass.COMM, "connection lost"), last_step=50, snapshot_step=40)
    until(lambda: job_page.evaluate("1") and late, "the list of snapshots is requested")
    job.snapshot(60)
    job.begin_attempt(resumed_from_step=60)
    expect(job_page.locator("#snapshots li")).to_have_count(2)
    release()
    expect(job_page.locator("#snapshots li")).to_have_count(2)


def test_a_stack_that_comes_late_is_not_shown_as_that_of_another_rank(job_page: Page) -> None:
    held: list[Route] = []
    job_page.route("**/ranks/0/stack", lambda route: held.append(route))
    job_page.route("**/ranks/1/stack", lambda route: route.fulfill(json={"stack": "where rank 1 is"}))
    text = job_page.locator("#stack-text")
    for rank, shown in ((0, "Reading the stacks …"), (1, "where rank 1 is")):
        job_page.get_by_label("Rank", exact=True).select_option(str(rank))
        job_page.locator("#stack-open").click()
        expect(text).to_have_text(shown)
        job_page.get_by_role("button", name="Close").click()
    job_page.locator("#stack-open").click()
    expect(text).to_have_text("where rank 1 is")
    held[0].fulfill(json={"stack": "where rank 0 is"})
    job_page.evaluate("fetch('/healthz').then((answer) => answer.text())")
    expect(text).to_have_text("where rank 1 is")


def test_points_that_the_stream_has_skipped_are_fetched(job_page: Page, job: PlayedJob) -> None:
    """Such as when the page chooses another log, and lines are written between the old connection and the new one."""
    fetched = job_page.evaluate(
        """async (job) => {
            const { JobCharts } = await import("/static/job/job-charts.js");
            const { TimeAxis } = await import("/static/job/axis/time-axis.js");
            const requested = [];
            const { fetch: fetchIt, setTimeout: wait } = globalThis;
            globalThis.fetch = (url, options) => {
                requested.push(String(url));
                return fetchIt(url, options);
            };
            globalThis.setTimeout = (call, ms) => (ms === 250 ? call() : wait(call, ms)); // several events, one request
            const charts = new JobCharts(job, new TimeAxis(job, () => undefined));
            charts.append({ attempt: 1, file: "other.jsonl", offset: 5, next_offset: 10, points: [] });
            void charts.load();
            const counts = [[0, 10], [10, 20], [30, 40], [35, 50]].map(([offset, next_offset]) => {
                charts.append({ attempt: 1, file: "metrics.jsonl", offset, next_offset, points: [] });
                return requested.filter((url) => url.endsWith("/metrics/names")).length;
            });
            Object.assign(globalThis, { fetch: fetchIt, setTimeout: wait });
            return counts;
        }""",
        job.id,
    )
    assert fetched == [1, 1, 2, 2]


def test_tabs_share_one_stream_and_each_receives_its_own_job(job_page: Page, job: PlayedJob, play: Play) -> None:
    other = play("other", ranks=1)
    other.begin_attempt()
    second = job_page.context.new_page()
    second.goto(f"/jobs/{other.id}")
    expect(second.locator("#job-state")).to_have_text("running")
    job.write(b"of the first\n")
    other.write(b"of the second\n")
    expect(job_page.locator("#log-lines")).to_have_text("of the first")
    expect(second.locator("#log-lines")).to_have_text("of the second")
    second.close()
    job.write(b"of the first again\n")
    expect(job_page.locator("#log-lines .log-line")).to_have_text(["of the first", "of the first again"])


def test_a_link_leads_nowhere_before_the_page_knows_where_to(page: Page) -> None:
    links = {"jobs": ("Clone",), "experiments": ("Run again with changes", "Jobs of this experiment")}
    for path, names in links.items():
        page.route(f"**/api/v1/{path}/some*", lambda _: None)
        with page.expect_request(f"**/api/v1/{path}/some*"):
            page.goto(f"/{path}/some")
        for name in names:
            expect(page.get_by_text(name, exact=True)).to_be_visible()
            expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)


def test_a_job_that_does_not_exist_is_reported_as_not_found(page: Page, watcher: Watcher) -> None:
    watcher.expect("404")
    page.goto("/jobs/nosuchjob0")
    expect(page.get_by_role("heading", name="Job not found")).to_be_visible()
    page.get_by_role("link", name="All jobs").click()
    expect(page.locator("#connection")).to_have_text("Live")


def test_steps_are_replayed_from_the_axis_once_the_job_has_stopped(
    page: Page, play: Play, client: Client, watcher: Watcher
) -> None:
    job = play("spike", ranks=1, python=sys.executable)
    (job.run_dir.code / "train.py").write_text("")
    write_json(job.run_dir.code_manifest, take_manifest(job.run_dir.code).to_json())
    job.begin_attempt()
    for step in range(1, 41):
        job.metric(step, loss=1 / step)
    DigestWriter(job.run_dir, ranks=1).write(range(10, 50, 10))
    notice = f"silent divergence in steps 21 to 30: rank 1, parameters of {HOSTILE}"
    job.report(0, step=40, snapshot_policy="every 5 steps", notice=notice)
    page.goto(f"/jobs/{job.id}#t={time.time()}")
    expect(page.get_by_label("Digests of 4 steps, the last of step 40")).to_be_visible()
    expect(page.get_by_role("button", name="Replay: the job must stop first")).to_be_disabled()
    expect(page.get_by_role("button", name=notice)).to_be_disabled()
    done = Outcome(OutcomeClass.SUCCESS, "Every rank finished.")
    job.end_attempt(done, last_step=40)
    job.end(JobState.SUCCEEDED, done)
    page.get_by_role("button", name="Replay from step 40").press("Enter")
    dialog = page.get_by_role("dialog", name="Replay steps?")
    expect(dialog.get_by_label("First step")).to_have_value("40")
    page.keyboard.press("Escape")
    page.get_by_role("button", name=notice).press("Enter")
    expect(dialog).to_contain_text(notice)
    expect(dialog.get_by_label("First step")).to_have_value("30")
    watcher.expect("422")
    replay = dialog.get_by_role("button", name="Replay")
    dialog.get_by_label("Last step").fill("29")
    replay.click()
    expect(dialog.locator("[data-field=until] .error")).to_have_text("Must not be before step 30.")
    expect(dialog.get_by_label("Last step")).to_be_focused()
    assert found_by_axe(page) == []
    dialog.get_by_label("First step").fill("900")
    dialog.get_by_label("Last step").fill("")
    replay.click()
    expect(dialog.locator("[data-field=step] .error")).to_contain_text("from 1 to 40")
    expect(dialog.locator("[data-field=until] .error")).to_have_count(0)
    dialog.get_by_label("First step").fill("31")
    dialog.get_by_label("Last step").fill("40")
    dialog.get_by_label("Device").fill("moon")
    replay.click()
    expect(dialog.locator("[data-field=device] .error")).not_to_be_empty()
    dialog.get_by_label("Device").fill("cpu")
    dialog.get_by_label("Record layers").check()
    watcher.expect("404")  # the script is empty, so that nothing is recorded
    replay.press("Enter")
    page.wait_for_url(lambda url: job.id not in url)
    expect(page.locator("#replay-title")).to_have_text(f"Replay of job {job.number} spike, steps 31 to 40")
    replayed = client.job(page.url.rpartition("/")[2])
    options = [replayed[name] for name in ("replay", "last_step", "record_step", "device")]
    assert options == [{"job": job.id, "step": 31}, 40, 31, "cpu"]
    expect(page.locator("#replay-diff")).to_contain_text("Nothing can be compared: ", timeout=60_000)
    expect(page.locator("#layers-samples")).to_contain_text("has recorded no step")
    page.get_by_role("link", name=f"job {job.number} spike").click()
    page.wait_for_url(f"**/jobs/{job.id}")


def test_a_replay_shows_whether_its_steps_are_the_same_and_what_its_layers_computed(
    page: Page, play: Play, watcher: Watcher
) -> None:
    watcher.expect("404")  # rank 0 has recorded nothing
    original = play("spike")
    original.begin_attempt()
    DigestWriter(original.run_dir).write([60])
    job = play("replay of spike", replay=Replay(original.id, 60), last_step=60, record_step=60)
    job.begin_attempt()
    writer = DigestWriter(job.run_dir)
    writer.write([60], writer.tensors(60, 1, TensorKind.PARAMETERS, 1))
    tensors = [
        LayerRecord("batch", "0", [32, 16], -2.5, 30000.0, 31000.0, 0, "0" * 16),
        LayerRecord("forward", HOSTILE, [], None, None, 0.0, 3, "0" * 16),
    ]
    record = StepRecord(60, list(range(100, 140)), tensors)
    write_json(job.run_dir.attempt(1).rank(1).layers, record.to_json())
    page.goto(f"/jobs/{job.id}")
    card = page.get_by_role("region", name=f"Replay of job {original.number} spike, step 60")
    expect(card).to_contain_text("Once it has ended, its digests are compared")
    expect(card.locator("#layers")).to_be_hidden()
    done = Outcome(OutcomeClass.SUCCESS, "Every rank finished.")
    job.end_attempt(done, last_step=60)
    job.end(JobState.SUCCEEDED, done)
    expect(card.locator(".verdict")).to_contain_text("First difference: step 60, parameters of fc.bias on rank 1")
    expect(card.locator("#layers-samples")).to_contain_text("rank 0 of attempt 1 of job")
    card.get_by_label("Layers of rank").select_option("1")
    expect(card.locator("#layers-samples")).to_have_text(re.compile("^Samples of step 60: 100, .*131 and 8 more$"))
    expect(card.locator("#layers-rows tr")).to_have_text(
        ["batch032x16-2.53000031000\N{EN DASH}", f"forward{HOSTILE}\N{EN DASH}\N{EN DASH}\N{EN DASH}03"]
    )
    expect(card.locator("#layers-rows .late")).to_have_count(1)
    expect(card.locator("#layers-found")).to_have_text(
        f"The first values that are not finite are in {HOSTILE} (forward)."
    )
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function("document.documentElement.scrollWidth <= 390")
    assert found_by_axe(page) == []
    assert page.locator("main img").count() == 0
