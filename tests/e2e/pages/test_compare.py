"""The page that compares jobs."""

import re

from playwright.sync_api import Page, expect

from e2e.played_job import Play
from e2e.watcher import Watcher, found_by_axe
from rekindle.contract.outcome import Outcome, OutcomeClass

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
