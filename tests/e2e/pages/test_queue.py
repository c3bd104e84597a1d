"""The list of jobs in a browser."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from e2e.pages.test_long_queue import fill_list
from e2e.played_job import Play
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from e2e.watcher import Watcher
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import JobState
from rekindle_service.client import Client
from rekindle_service.client.discovery import Server

SMALL = {"recipe": "rl", "device": "cpu", "args": ["--epochs", "1"]}
"""Never starts here: tests fill the slots, or let it wait for another job."""


pytestmark = pytest.mark.usefixtures("empty_list")


@pytest.fixture
def queue(page: Page) -> Page:
    """The list, which is empty."""
    page.goto("/")
    page.wait_for_selector("main[aria-busy=false]")
    return page


def test_a_browser_without_shared_workers_connects_from_the_page(page: Page, play: Play) -> None:
    page.add_init_script("delete globalThis.SharedWorker")
    page.goto("/")
    expect(page.locator("#connection")).to_have_text("Live")
    play("late-comer")
    expect(page.locator("#jobs").get_by_role("row", name="late-comer")).to_be_visible()
    assert page.evaluate("typeof SharedWorker") == "undefined"


def test_filters_are_stored_in_the_url(queue: Page, watcher: Watcher, play: Play) -> None:
    watcher.expect("422")
    play("one").begin_attempt()
    broken = play("two", ranks=1)
    broken.begin_attempt()
    broken.end(JobState.FAILED, _failure())
    names, line = queue.locator("#jobs .job-name"), queue.get_by_label("Filter", exact=True)
    expect(names).to_have_text(["two", "one"])
    queue.get_by_role("button", name="Failed").click()
    expect(queue.locator("#found .job-name")).to_have_text(["two"])
    queue.reload()
    expect(names).to_have_text(["two"])
    expect(line).to_have_value("state:failed")
    queue.get_by_role("button", name="Archived").click()
    expect(queue.locator("#nothing-found")).to_be_visible()
    queue.go_back()
    expect(names).to_have_text(["two"])
    line.fill("stat:failed")
    expect(queue.locator("#filter-error")).to_contain_text("q: has no key stat")
    line.fill("ON")
    expect(names).to_have_text(["one"])
    assert queue.url.endswith("/?q=ON")
    queue.get_by_role("button", name="Save view").click()
    line.press("Escape")
    expect(names).to_have_text(["two", "one"])
    queue.reload()
    queue.get_by_role("button", name="ON", exact=True).click()
    expect(names).to_have_text(["one"])
    queue.goto("/?q=stat:failed")
    expect(queue.locator("#filter-error")).to_contain_text("q: has no key stat")
    expect(queue.locator("main")).to_have_attribute("aria-busy", "false")


def test_ones_own_jobs_are_shown_when_the_server_says_late_who_that_is(page: Page, watcher: Watcher) -> None:
    watcher.expect("503")
    page.add_init_script("localStorage.setItem('rekindle-mine', 'true')")
    page.route("**/api/v1/me", lambda route: route.fulfill(status=503, json={}), times=1)
    page.goto("/?q=nothing")
    expect(page.locator("#nothing-found")).to_be_visible()
    expect(page.locator("#person")).to_be_visible()


def test_the_page_shows_who_is_next_and_why_and_what_each_owner_has_used(
    queue: Page, server: ServeProcess, client: Client, play: Play
) -> None:
    play("runs", ranks=4).begin_attempt()
    first = client.submit({**SMALL, "name": "first", "priority": 3})["id"]
    client.submit({**SMALL, "name": "second", "after_any": [first]})
    client.submit({**SMALL, "name": "kept", "hold": True})
    waiting = queue.locator("#next tr")
    expect(waiting).to_have_count(2)
    expect(waiting.nth(0)).to_contain_text("waiting for 1 CPU slot, 0 free")
    expect(waiting.nth(0).get_by_role("link")).to_have_text("first")
    expect(waiting.nth(1)).to_contain_text(f"waiting for first (#{number(client, first)}) to end")
    expect(queue.locator("#needs-you tr")).to_contain_text("on hold")
    expect(queue.locator("#owner-shares tr")).to_have_count(2)
    expect(queue.locator("#owner-shares tr", has_text="local")).to_have_count(1)
    anna = Server(server.url, client.create_token("anna")["token"])
    with Client(lambda: anna) as hers:
        hers.submit({**SMALL, "name": "hers"})
    expect(queue.locator("#owner-shares tr")).to_have_count(3)
    queue.locator("#owner-shares").get_by_role("link", name="anna").click()
    expect(queue.locator("#jobs .job-name")).to_have_text(["hers"])
    expect(queue.get_by_label("Filter", exact=True)).to_have_value("owner:anna")


def test_selected_jobs_are_held_released_moved_and_cancelled_with_one_question(
    queue: Page, client: Client, play: Play
) -> None:
    running = play("runs", ranks=4)
    running.begin_attempt()
    first, second = (client.submit({**SMALL, "name": name})["id"] for name in ("first", "second"))
    over = play("over", ranks=1)
    over.begin_attempt()
    over.end(JobState.FAILED, _failure())
    numbers = [number(client, job) for job in (first, second, over.id)]
    expect(queue.locator("#jobs").get_by_role("row", name="first")).to_contain_text("next")
    expect(queue.locator("#jobs").get_by_role("row", name="first")).to_contain_text("waiting for 1 CPU slot, 0 free")
    expect(queue.locator("#jobs").get_by_role("row", name="over").locator(".badge")).to_have_text("failed")
    for name in ("first", "second", "over"):
        queue.locator("#jobs").get_by_role("row", name=name).get_by_role("checkbox").check()
    expect(queue.locator("#bulk-count")).to_have_text("3 selected")
    queue.locator("#bulk-hold").click()
    dialog = queue.locator("#confirm")
    expect(dialog).to_contain_text("Hold 2 jobs?")
    expect(dialog.locator("#confirm-jobs li")).to_have_text([f"#{numbers[0]} first", f"#{numbers[1]} second"])
    expect(dialog).to_contain_text("1 selected job is skipped")
    dialog.get_by_role("button", name="Back").click()
    assert client.job(first)["intent"] == "run"
    queue.locator("#bulk-hold").click()
    queue.keyboard.press("Tab")
    queue.locator("#confirm-yes").press("Enter")
    expect(queue.locator("#bulk-result")).to_have_text("2 jobs held")
    expect(queue.locator("#jobs").get_by_role("row", name="second").locator(".badge")).to_have_text("held")
    queue.locator("#bulk-release").click()
    queue.locator("#confirm-yes").click()
    expect(queue.locator("#bulk-result")).to_have_text("2 jobs released")
    queue.locator("#jobs").get_by_role("row", name="first").get_by_role("checkbox").uncheck()
    queue.locator("#bulk-priority").click()
    queue.get_by_label("Priority", exact=True).fill("7")
    queue.locator("#confirm-yes").click()
    expect(queue.locator("#jobs").get_by_role("row", name="second")).to_contain_text("next")
    assert client.job(second)["priority"] == 7
    queue.get_by_label("Select all jobs on this page").check()
    expect(queue.locator("#bulk-count")).to_have_text("4 selected")
    queue.locator("#bulk-cancel").click()
    queue.locator("#confirm-yes").click()
    expect(queue.locator("#bulk-result")).to_have_text("3 jobs cancelled")
    for name in ("first", "second"):
        expect(queue.locator("#jobs").get_by_role("row", name=name).locator(".badge")).to_have_text("cancelled")
    assert running.wanted() == "cancel"
    queue.locator("#bulk-delete").click()
    expect(dialog.locator("#confirm-jobs li")).to_have_text(
        [f"#{numbers[1]} second", f"#{numbers[2]} over", f"#{numbers[0]} first"]
    )
    running.end(JobState.FAILED, _failure())
    expect(queue.locator("#jobs").get_by_role("row", name="runs").locator(".badge")).to_have_text("failed")
    queue.locator("#confirm-yes").click()
    expect(queue.locator("#bulk-result")).to_have_text("3 jobs deleted")
    expect(queue.locator("#bulk-count")).to_have_text("1 selected")
    assert [job["name"] for job in client.jobs()] == ["runs"]
    queue.get_by_role("button", name="Clear selection").click()
    expect(queue.locator("#bulk")).to_be_hidden()


def test_the_question_before_a_drain_says_which_jobs_lose_work(queue: Page, play: Play) -> None:
    silent, other = play("silent", ranks=1), play("other", ranks=1)
    for job in (silent, other):
        job.begin_attempt()
    other.report(0, step=250)
    rows = [queue.locator("#running").get_by_role("row", name=name) for name in ("silent", "other")]
    expect(rows[1]).to_contain_text("step 250")
    for row in rows:
        row.get_by_role("checkbox").check()
    queue.locator("#bulk-drain").click()
    consequence, note = queue.locator("#confirm-consequence"), queue.locator("#confirm-note")
    expect(consequence).to_contain_text("saves a snapshot")
    loss = r"This script reports no steps .* no checkpoint of its own was found\.$"
    expect(note).to_have_text(re.compile(f"^#{silent.number}: {loss}"))
    queue.get_by_role("button", name="Back").click()
    rows[1].get_by_role("checkbox").uncheck()
    queue.locator("#bulk-drain").click()
    expect(note).to_have_text(re.compile(f"^{loss}"))
    expect(consequence).to_be_empty()


def test_the_result_of_an_experiment_is_asked_for_once(page: Page, client: Client, play: Play) -> None:
    first = client.submit({**SMALL, "name": "first", "hold": True})["id"]
    base = {"recipe": "rl", "device": "cpu", "after": [first]}
    experiment = client.submit_experiment({"name": "rates", "base": base, "matrix": {"--epochs": ["1", "2"]}})
    for trial in experiment["trials"]:
        client.cancel(trial["job"])
    asked: list[Route] = []
    page.route("**/best", lambda route: asked.append(route))
    page.goto("/")
    row = page.locator("#done tr")
    expect(row).to_contain_text("2 cancelled")
    play("late", ranks=1)  # which refreshes the page
    expect(page.locator("#jobs").get_by_role("row", name="late")).to_be_visible()
    for route in asked:
        route.fulfill(json={"text": "best loss 1"})
    expect(row).to_contain_text("best loss 1")
    assert len(asked) == 1
    client.delete_experiment(experiment["id"])


def test_an_error_for_one_selected_job_is_shown_and_the_others_continue(
    queue: Page, watcher: Watcher, client: Client, play: Play
) -> None:
    watcher.expect("409")
    before = play("before", ranks=1)
    for name in ("gone", "there"):
        client.submit({**SMALL, "name": name, "after": [before.id]})
    for name in ("gone", "there"):
        queue.locator("#jobs").get_by_role("row", name=name).get_by_role("checkbox").check()
    queue.route("**/drain", lambda route: _overtake(route, client))
    queue.locator("#bulk-hold").click()
    queue.locator("#confirm-yes").click()
    expect(queue.locator("#bulk-result")).to_contain_text("1 job held · gone: ")
    expect(queue.locator("#bulk-result")).to_contain_text("was cancelled, so it cannot be drained")


def test_a_range_is_tagged_and_archived_and_the_palette_finds_a_job(page: Page, client: Client, home: Path) -> None:
    fill_list(home, "job", 4)
    page.goto("/")
    rows = page.locator("#done tr")
    expect(rows).to_have_count(4)
    expect(page.locator("#jobs h2:visible")).to_contain_text(["Done"])
    rows.nth(0).get_by_role("checkbox").check()
    rows.nth(2).get_by_role("checkbox").click(modifiers=["Shift"])
    expect(page.locator("#bulk-count")).to_have_text("3 selected")
    page.locator("#bulk-tag").click()
    page.get_by_label("Tags", exact=True).fill("paper old")
    page.locator("#confirm-yes").click()
    expect(page.locator("#bulk-result")).to_have_text("3 jobs tagged")
    expect(rows.nth(0).locator(".tag")).to_have_text(["old", "paper"])
    page.locator("#bulk-archive").click()
    page.locator("#confirm-yes").click()
    expect(page.locator("#done .job-name")).to_have_count(1)
    page.get_by_role("button", name="Archived").click()
    expect(page.locator("#found .job-name")).to_have_count(3)
    page.get_by_role("button", name="Job", exact=True).click()
    expect(page.locator("#found .job-name")).to_have_text(sorted(job["name"] for job in client.jobs() if job["tags"]))
    page.get_by_text("Display", exact=True).click()
    page.get_by_label("Owner").uncheck()
    expect(page.get_by_role("columnheader", name="Owner")).to_be_hidden()
    page.keyboard.press("Control+k")
    page.keyboard.type("job 2")
    expect(page.locator("#palette-list li")).to_contain_text(["job 2"])
    page.keyboard.press("Enter")
    expect(page.locator("#job-name")).to_have_text("job 2")


def test_the_slots_over_time_show_what_ran_and_what_is_predicted(page: Page, client: Client, play: Play) -> None:
    play("runs", ranks=4).begin_attempt()
    client.submit({**SMALL, "name": "waits"})
    page.goto("/")
    bars = page.locator("#timeline-bars a")
    expect(bars).to_have_count(0)
    page.get_by_text("Slots over time").click()
    expect(bars.first).to_contain_text("runs")
    assert "nobody knows how long" in (bars.first.get_attribute("aria-label") or "")
    page.reload()
    expect(bars.first, "the panel stays open").to_be_visible()
    page.locator("#timeline-hours").select_option("24")
    expect(bars.first).to_contain_text("runs")
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    bars.first.click()
    expect(page).to_have_url(re.compile("/jobs/"))


def test_a_late_answer_about_the_slots_does_not_replace_that_for_the_time_chosen_since(page: Page) -> None:
    late: list[Route] = []
    page.route("**/timeline?hours=24", lambda route: late.append(route))
    page.goto("/")
    page.get_by_text("Slots over time").click()
    slots = page.locator("#timeline-slots li")
    expect(slots).to_have_count(4)
    hours = page.locator("#timeline-hours")
    with page.expect_request("**/timeline?hours=24"):
        hours.select_option("24")
    with page.expect_response("**/timeline?hours=2") as answer:
        hours.select_option("2")
    with page.expect_response("**/timeline?hours=24"):
        late[0].fulfill(json=answer.value.json() | {"slots": ["late"], "items": []})
    page.evaluate("new Promise(requestAnimationFrame)")
    assert slots.count() == 4


def test_failures_of_the_same_cause_are_one_row_and_only_ones_own_jobs_are_shown_on_request(
    queue: Page, client: Client, play: Play
) -> None:
    for name in ("one", "two", "three"):
        broken = play(name, ranks=1)
        broken.begin_attempt()
        broken.end(JobState.FAILED, replace(_failure(), exception="RuntimeError", file="train.py", line=31))
    row = queue.locator("#needs-you tr")
    expect(row).to_have_count(1)
    expect(queue.locator('[data-head="needs-you"] h2')).to_have_text("Needs you 1")
    row.get_by_text("3 jobs: RuntimeError at train.py:31").click()
    expect(row.locator(".alike a")).to_have_text([re.compile("two"), re.compile("one")])
    row.get_by_role("button", name="Mark all as seen").click()
    expect(row).to_have_count(0)
    expect(queue.locator("#done tr")).to_have_count(3)
    mine = queue.get_by_role("button", name="Mine")
    expect(mine).to_be_hidden()
    queue.evaluate("localStorage.setItem('rekindle-mine', 'true')")
    queue.reload()
    expect(mine).to_have_attribute("aria-pressed", "true")
    mine.click()
    expect(mine).to_be_hidden()


def test_slots_are_shown_for_each_kind_of_device_with_their_topology(page: Page) -> None:
    """There is no GPU here: the answer is made up, in the form of the contract."""
    gpus = [_gpu(index) for index in range(4)]
    pairs = [(0, 1, "nvlink"), (2, 3, "nvlink"), (0, 2, "sys"), (0, 3, "sys"), (1, 2, "sys"), (1, 3, "sys")]
    links = [{"first": f"cuda:{a}", "second": f"cuda:{b}", "kind": kind} for a, b, kind in pairs]
    answer = {"items": gpus, "next": None, "links": links, "excluded_nodes": {}}
    page.route("**/api/v1/devices", lambda route: route.fulfill(json=answer))
    page.goto("/")
    expect(page.locator(".slots-title")).to_have_text("4 \N{MULTIPLICATION SIGN} NVIDIA H200: 0 in use")
    expect(page.locator(".part")).to_have_text(["free · 4"])
    expect(page.locator(".topology")).to_have_text(
        "NVLink connects cuda:0 cuda:1, cuda:2 cuda:3; the inter-processor link connects all 4 GPUs"
    )
    page.goto("/machine")
    expect(page.locator("#links td.self")).to_have_count(4)
    expect(page.locator("#links tr").nth(0).locator("td")).to_have_text(["\N{EN DASH}", "nvlink", "sys", "sys"])


def _overtake(route: Route, client: Client) -> None:
    """Cancel the job called gone just before the request to hold it arrives."""
    gone = next(client.jobs(name="gone"))["id"]
    if gone in route.request.url:
        client.cancel(gone)
        until(lambda: client.job(gone)["state"] == "cancelled", "the job is cancelled")
    route.continue_()


def _gpu(index: int) -> dict[str, object]:
    held = {"job": None, "job_name": None, "job_state": None, "jobs": [], "free_share": 1.0}
    held |= {"unusable": None, "disabled": None, "users": []}
    return {"name": f"cuda:{index}", "device": "cuda", "index": index, "title": "NVIDIA H200", **held}


def number(client: Client, job_id: str) -> int:
    """What a job is called on the pages."""
    return client.job(job_id)["number"]


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
