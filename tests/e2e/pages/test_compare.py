"""The page that compares jobs."""

import re
from dataclasses import replace

from playwright.sync_api import Page, expect

from digest_files import DigestWriter
from e2e.played_job import Play
from e2e.watcher import Watcher, found_by_axe
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.digest_records import DigestNames, TensorKind

HOSTILE = "<img src=x onerror=alert(1)>"


def test_jobs_selected_in_the_queue_are_compared_live(page: Page, watcher: Watcher, play: Play) -> None:
    watcher.expect("404")
    one = play("one", ranks=1, args=["--lr", "0.1", "--seed", "7"], env={"API_KEY": "secret"})
    two = play(HOSTILE, ranks=2, args=["--lr=0.2", "--seed", "7", "--nesterov"])
    for job in (one, two):
        job.begin_attempt()
        for step in range(1, 21):
            job.metric(step, loss=1 / step, **{HOSTILE: 1.0})
    two.end_attempt(Outcome(OutcomeClass.COMM, "connection lost"), last_step=20)
    two.begin_attempt(resumed_from_step=10)
    for step in range(11, 16):
        two.metric(step, loss=2 / step)
    page.goto("/")
    for name in ("one", HOSTILE):
        page.get_by_role("checkbox", name=f", {name}").check()
    page.get_by_role("link", name="Compare", exact=True).click()
    page.wait_for_url("**/compare?jobs=*")
    lines = page.locator("#parameters tr")
    expect(lines.filter(has_text="--lr").locator("td")).to_have_text(["0.1", "0.2"])
    expect(lines.filter(has_text="--nesterov").locator("td")).to_have_text(["\N{EN DASH}", "yes"])
    expect(lines.filter(has_text="API_KEY").locator("td")).to_have_text(["set, its value is secret", "\N{EN DASH}"])
    expect(lines.filter(has_text="--seed")).to_have_count(0)
    page.get_by_label("Show equal parameters").check()
    expect(lines.filter(has_text="--seed").locator("td")).to_have_text(["7", "7"])
    results = page.locator("#results tr")
    expect(results.filter(has_text="loss").locator("td")).to_have_text(["0.05 at step 20 (best)", "0.1333 at step 15"])
    replayed_once = re.compile(r"^2 curves of 35 points, step 1 to 20")
    expect(page.get_by_label("Chart of loss")).to_have_attribute("aria-description", replayed_once)
    two.metric(30, loss=0.01)
    two.report(0, step=30)
    expect(results.filter(has_text="loss").locator("td").nth(1)).to_have_text("0.01 at step 30 (best)")
    expect(page.locator("#parallel .row-line")).to_have_count(2)
    expect(page.locator("#scatter circle")).to_have_count(2)
    page.get_by_role("button", name="loss", exact=True).click()
    expect(page.locator("#compared-jobs a")).to_have_text([HOSTILE, "one"])
    page.get_by_role("button", name=" one in the charts").click()
    expect(page.get_by_label("Chart of loss")).to_have_attribute("aria-description", re.compile("^1 curve "))
    expect(page.locator("#hidden-count")).to_have_text("1 row is hidden.")
    assert found_by_axe(page) == []
    assert page.locator("main img, main script").count() == 0
    page.get_by_role("button", name="Remove one from the comparison").click()
    expect(page.locator("#compared-jobs th")).to_have_count(2)
    page.get_by_label("Add a job").select_option(one.id)
    expect(page.locator("#compared-jobs th")).to_have_count(3)
    page.go_back()
    expect(page.locator("#compared-jobs th")).to_have_count(2)
    page.goto(f"/compare?jobs={one.id},0-never-was")
    expect(page.locator("#missing")).to_have_text("Job not found: 0-never-was.")
    expect(page.locator("#compared-jobs th")).to_have_count(2)
    page.goto("/compare")
    expect(page.locator("#nothing")).to_be_visible()


def test_the_step_at_which_two_trainings_part_is_named_and_marked_in_their_curves(page: Page, play: Play) -> None:
    one, two = play("one"), play("two", args=["--lr", "0.2"])
    names = DigestNames([HOSTILE, "fc.bias"], ["momentum"], [])
    for job in (one, two):
        job.begin_attempt()
        for step in range(1, 41):
            job.metric(step, loss=1 / step)
        writer = DigestWriter(job.run_dir, names=names)
        changed = writer.tensors(30, 1, TensorKind.GRADIENTS, 0)
        writer.write(range(10, 50, 10), changed if job is two else None)
    page.goto(f"/compare?jobs={one.id},{two.id}")
    card = page.get_by_role("region", name="Digests")
    verdict = f"First difference: step 30, gradients of {HOSTILE} on rank 1; equal up to step 20."
    expect(card.locator(".verdict")).to_have_text(verdict)
    expect(card.locator("tbody tr")).to_have_text([f"gradients1{HOSTILE}"])
    expect(card.locator(".causes li")).to_have_text(["arguments: --lr (absent) and 0.2"])
    expect(card).to_contain_text(f"Find the step: rekindle diff {one.number} {two.number} --replay")
    marked = re.compile("^2 curves of 80 points.*differ at step 30$")
    expect(page.get_by_label("Chart of loss")).to_have_attribute("aria-description", marked)
    assert found_by_axe(page) == []
    assert page.locator("main img").count() == 0
    page.get_by_role("button", name="Remove two from the comparison").click()
    expect(card).to_be_hidden()
    expect(page.get_by_label("Chart of loss")).not_to_have_attribute("aria-description", re.compile("differ"))


def test_over_epochs_a_value_is_drawn_where_the_epoch_that_it_belongs_to_ends(page: Page, play: Play) -> None:
    job = play("validated")
    job.begin_attempt()
    for step in range(1, 41):
        validated = {} if step % 20 else {"val_accuracy": 0.5}
        job.metric(step, epoch=(step - 1) // 20, loss=1 / step, **validated)
    page.goto(f"/compare?jobs={job.id}")
    page.get_by_label("X axis").select_option("epoch")
    for name, summary in (("loss", "40 points, epoch 0.05 to 2"), ("val_accuracy", "2 points, epoch 1 to 2")):
        expect(page.get_by_label(f"Chart of {name}")).to_have_attribute("aria-description", f"1 curve of {summary}")


def test_two_attempts_of_a_job_are_compared(page: Page, play: Play) -> None:
    job = play("twice")
    job.begin_attempt()
    for step in range(1, 31):
        job.metric(step, loss=1 / step)
    first = DigestWriter(job.run_dir)
    first.write([10, 20, 30])
    job.end_attempt(Outcome(OutcomeClass.COMM, "connection lost"), last_step=30)
    job.begin_attempt(resumed_from_step=10)
    for step in range(11, 31):
        job.metric(step, loss=2 / step)
    second = replace(first, attempt=2)
    second.write([20, 30], second.later(30, 0, batch="other"))
    page.goto(f"/jobs/{job.id}")
    page.get_by_role("link", name="Compare with attempt 1").click()
    expect(page.locator("#compared-jobs a")).to_have_text(["twice, attempt 1", "twice, attempt 2"])
    expect(page.locator("#training-diff .verdict")).to_contain_text("First difference: step 30, content of the batch")
    summary = re.compile("^2 curves of 50 points, step 1 to 30, differ at step 30$")
    expect(page.get_by_label("Chart of loss")).to_have_attribute("aria-description", summary)
    expect(page.locator("#results tr").first.locator("td").first).to_have_text("30 / 1,000")
    page.goto(f"/compare?jobs={job.id}@1,{job.id}@9")
    expect(page.locator("#missing")).to_have_text(f"Job not found: {job.id}@9.")
    expect(page.locator("#digests")).to_be_hidden()
