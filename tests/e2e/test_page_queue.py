"""The list of jobs in a browser."""

import time
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import BrowserContext, Page, Route, expect

from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from e2e.watcher import Watcher
from rekindle.contract.job import JobSpec, TargetKind
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import JobState
from rekindle_service.client import Client
from rekindle_service.client.discovery import Server
from rekindle_service.config.home import Home, new_job_id
from rekindle_service.jobs.submitter import new_job
from rekindle_service.store import Store
from rekindle_service.store.mutations import insert_all

SMALL = {"recipe": "rl", "device": "cpu", "args": ["--epochs", "1"]}
"""Never starts here: tests fill the slots, or let it wait for another job."""

HOSTILE = "<img src=x onerror=alert(1)> \"'> <script>alert(2)</script> {{7*7}} \u202eevil"


def test_an_empty_list_shows_the_command_to_type(page: Page) -> None:
    expect(page.locator("#nothing-yet")).to_contain_text("rekindle submit train.py")
    expect(page.locator("#nothing-yet")).to_contain_text("rekindle demo")


def test_a_job_and_its_progress_appear_without_reload(page: Page, play: Callable[..., PlayedJob]) -> None:
    page.evaluate("globalThis.loadedOnce = true")
    job = play("digits-baseline")
    row = page.locator("#jobs").get_by_role("row", name="digits-baseline")
    expect(row.locator(".badge")).to_have_text("starting")
    expect(row.locator(".args")).to_contain_text("#1")
    job.begin_attempt()
    expect(row.locator(".badge")).to_have_text("running")
    for rank in (0, 1):
        job.report(rank, step=250)
    expect(row).to_contain_text("step 250 / 1,000")
    expect(row.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "25")
    job.end(JobState.FAILED, _failure())
    expect(row.locator(".badge")).to_have_text("failed")
    expect(row).to_contain_text("ValueError: no such label")
    expect(row).to_contain_text("(rank 1, train.py:42)")
    expect(page.locator("#needs-you tr")).to_have_count(1)
    expect(page).to_have_title("1 needs you · Jobs · rekindle")
    assert page.evaluate("globalThis.loadedOnce") is True


def test_a_browser_without_shared_workers_connects_from_the_page(
    visitor: BrowserContext, server: ServeProcess, play: Callable[..., PlayedJob]
) -> None:
    visitor.add_init_script("delete globalThis.SharedWorker")
    page = visitor.new_page()
    page.goto(f"{server.url}/login#token={server.token}")
    expect(page.locator("#connection")).to_have_text("Live")
    play("late-comer")
    expect(page.locator("#jobs").get_by_role("row", name="late-comer")).to_be_visible()
    assert page.evaluate("typeof SharedWorker") == "undefined"


def test_totals_and_slots_follow_the_jobs(page: Page, play: Callable[..., PlayedJob]) -> None:
    expect(page.locator("#total-slots")).to_have_text("0 / 4")
    play("holder", ranks=2).begin_attempt()
    expect(page.locator("#total-running")).to_have_text("1")
    expect(page.locator("#total-slots")).to_have_text("2 / 4")
    expect(page.locator("#slots .part")).to_have_text(["holder · 2", "free · 2"])
    expect(page.locator(".slots-title")).to_have_text("4 CPU slots: 2 in use")


def test_filters_are_stored_in_the_url(page: Page, watcher: Watcher, play: Callable[..., PlayedJob]) -> None:
    watcher.expect("422")
    play("one").begin_attempt()
    broken = play("two", ranks=1)
    broken.begin_attempt()
    broken.end(JobState.FAILED, _failure())
    names, line = page.locator("#jobs .job-name"), page.get_by_label("Filter", exact=True)
    expect(names).to_have_text(["two", "one"])
    page.get_by_role("button", name="Failed").click()
    expect(page.locator("#found .job-name")).to_have_text(["two"])
    page.reload()
    expect(names).to_have_text(["two"])
    expect(line).to_have_value("state:failed")
    page.get_by_role("button", name="Archived").click()
    expect(page.locator("#nothing-found")).to_be_visible()
    page.go_back()
    expect(names).to_have_text(["two"])
    line.fill("stat:failed")
    expect(page.locator("#filter-error")).to_contain_text("q: has no key stat")
    line.fill("ON")
    expect(names).to_have_text(["one"])
    assert page.url.endswith("/?q=ON")
    page.get_by_role("button", name="Save view").click()
    line.press("Escape")
    expect(names).to_have_text(["two", "one"])
    page.reload()
    page.get_by_role("button", name="ON", exact=True).click()
    expect(names).to_have_text(["one"])


def test_the_server_turns_the_pages(page: Page, server: ServeProcess, home: Path) -> None:
    fill_list(home, 53)
    page.goto(f"{server.url}/?state=cancelled")
    rows = page.locator("#found tr")
    expect(rows).to_have_count(50)
    page.get_by_role("button", name="Older").click()
    expect(page.locator("#found .job-name")).to_have_text(["job 3", "job 2", "job 1"])
    assert "cursor=4" in page.url
    page.reload()
    expect(rows).to_have_count(3)
    page.go_back()
    expect(rows).to_have_count(50)


def test_the_page_shows_who_is_next_and_why_and_what_each_owner_has_used(
    page: Page, server: ServeProcess, client: Client, play: Callable[..., PlayedJob]
) -> None:
    play("runs", ranks=4).begin_attempt()
    first = client.submit({**SMALL, "name": "first", "priority": 3})["id"]
    client.submit({**SMALL, "name": "second", "after_any": [first]})
    client.submit({**SMALL, "name": "kept", "hold": True})
    waiting = page.locator("#next tr")
    expect(waiting).to_have_count(2)
    expect(waiting.nth(0)).to_contain_text("waits for 1 cpu slot, 0 free")
    expect(waiting.nth(0).get_by_role("link")).to_have_text("first")
    expect(waiting.nth(1)).to_contain_text("waits for first (#2) to end")
    expect(page.locator("#needs-you tr")).to_contain_text("on hold until it is released")
    expect(page.locator("#owner-shares tr")).to_have_count(2)
    expect(page.locator("#owner-shares tr", has_text="local")).to_have_count(1)
    anna = Server(server.url, client.create_token("anna")["token"])
    with Client(lambda: anna) as hers:
        hers.submit({**SMALL, "name": "hers"})
    expect(page.locator("#owner-shares tr")).to_have_count(3)
    page.locator("#owner-shares").get_by_role("link", name="anna").click()
    expect(page.locator("#jobs .job-name")).to_have_text(["hers"])
    expect(page.get_by_label("Filter", exact=True)).to_have_value("owner:anna")


def fill_list(home: Path, count: int, *, after: str | None = None) -> list[str]:
    """Rows and nothing else, in one transaction: jobs that were cancelled before they began, or that wait for one."""
    store = Store(Home(home).database)
    state = {"state": JobState.CANCELLED, "ended_at": time.time()} if after is None else {"state": JobState.QUEUED}
    jobs = [
        new_job(
            new_job_id(),
            JobSpec(f"job {number}", TargetKind.RECIPE, "rl", "python", device="cpu", after=[after] if after else []),
            created_at=time.time(),
            **state,
        )
        for number in range(1, count + 1)
    ]
    with store.writing() as session:
        insert_all(session, jobs)
    store.close()
    return [job.id for job in jobs]


def test_the_sections_stay_live_with_two_thousand_jobs(
    page: Page, server: ServeProcess, client: Client, home: Path, play: Callable[..., PlayedJob]
) -> None:
    fill_list(home, 1_900)
    running = play("runs", ranks=1)
    waiting = fill_list(home, 100, after=running.id)
    running.begin_attempt()
    page.goto(server.url)
    heads = page.locator("#jobs h2:visible")
    expect(heads).to_have_text(["Running 1", "Next to start 20 of 100", "Done"])
    for section in ("#next", "#done"):
        expect(page.locator(f"{section} tr")).to_have_count(20)
    page.evaluate("globalThis.loadedOnce = true")
    running.report(0, step=250)
    expect(page.locator("#running tr")).to_contain_text("step 250 / 1,000")
    client.cancel(waiting[0])
    expect(page.locator("#done tr").first).to_contain_text("#1902")
    expect(heads).to_have_text(["Running 1", "Next to start 20 of 99", "Done"])
    page.get_by_role("button", name="Show more").click()
    expect(page.locator("#next tr")).to_have_count(99)
    expect(page.locator("#done tr")).to_have_count(200)
    running.end(JobState.FAILED, _failure())
    expect(page.locator("#needs-you tr").first).to_contain_text("no such label")
    expect(page.locator("#running tr")).to_have_count(0)
    assert page.evaluate("globalThis.loadedOnce") is True


def test_selected_jobs_are_held_released_moved_and_cancelled_with_one_question(
    page: Page, client: Client, play: Callable[..., PlayedJob]
) -> None:
    running = play("runs", ranks=4)
    running.begin_attempt()
    first, second = (client.submit({**SMALL, "name": name})["id"] for name in ("first", "second"))
    over = play("over", ranks=1)
    over.begin_attempt()
    over.end(JobState.FAILED, _failure())
    expect(page.locator("#jobs").get_by_role("row", name="first")).to_contain_text("next")
    expect(page.locator("#jobs").get_by_role("row", name="first")).to_contain_text("waits for 1 cpu slot, 0 free")
    expect(page.locator("#jobs").get_by_role("row", name="over").locator(".badge")).to_have_text("failed")
    for name in ("first", "second", "over"):
        page.locator("#jobs").get_by_role("row", name=name).get_by_role("checkbox").check()
    expect(page.locator("#bulk-count")).to_have_text("3 selected")
    page.locator("#bulk-hold").click()
    dialog = page.locator("#confirm")
    expect(dialog).to_contain_text("Hold 2 jobs?")
    expect(dialog.locator("#confirm-jobs li")).to_have_text(["#2 first", "#3 second"])
    expect(dialog).to_contain_text("1 selected job is skipped")
    dialog.get_by_role("button", name="Back").click()
    assert client.job(first)["intent"] == "run"
    page.locator("#bulk-hold").click()
    page.keyboard.press("Tab")
    page.locator("#confirm-yes").press("Enter")
    expect(page.locator("#bulk-result")).to_have_text("2 jobs held")
    expect(page.locator("#jobs").get_by_role("row", name="second").locator(".badge")).to_have_text("held")
    page.locator("#bulk-release").click()
    page.locator("#confirm-yes").click()
    expect(page.locator("#bulk-result")).to_have_text("2 jobs released")
    page.locator("#jobs").get_by_role("row", name="first").get_by_role("checkbox").uncheck()
    page.locator("#bulk-priority").click()
    page.get_by_label("Priority", exact=True).fill("7")
    page.locator("#confirm-yes").click()
    expect(page.locator("#jobs").get_by_role("row", name="second")).to_contain_text("next")
    assert client.job(second)["priority"] == 7
    page.get_by_label("Select all jobs on this page").check()
    expect(page.locator("#bulk-count")).to_have_text("4 selected")
    page.locator("#bulk-cancel").click()
    page.locator("#confirm-yes").click()
    expect(page.locator("#bulk-result")).to_have_text("3 jobs cancelled")
    for name in ("first", "second"):
        expect(page.locator("#jobs").get_by_role("row", name=name).locator(".badge")).to_have_text("cancelled")
    assert running.wanted() == "cancel"
    page.locator("#bulk-delete").click()
    expect(dialog.locator("#confirm-jobs li")).to_have_text(["#3 second", "#4 over", "#2 first"])
    running.end(JobState.FAILED, _failure())
    expect(page.locator("#jobs").get_by_role("row", name="runs").locator(".badge")).to_have_text("failed")
    page.locator("#confirm-yes").click()
    expect(page.locator("#bulk-result")).to_have_text("3 jobs deleted")
    expect(page.locator("#bulk-count")).to_have_text("1 selected")
    assert [job["name"] for job in client.jobs()] == ["runs"]
    page.get_by_role("button", name="Clear selection").click()
    expect(page.locator("#bulk")).to_be_hidden()


def test_an_error_for_one_selected_job_is_shown_and_the_others_continue(
    page: Page, watcher: Watcher, client: Client, play: Callable[..., PlayedJob]
) -> None:
    watcher.expect("409")
    before = play("before", ranks=1)
    for name in ("gone", "there"):
        client.submit({**SMALL, "name": name, "after": [before.id]})
    for name in ("gone", "there"):
        page.locator("#jobs").get_by_role("row", name=name).get_by_role("checkbox").check()
    page.route("**/drain", lambda route: _overtake(route, client))
    page.locator("#bulk-hold").click()
    page.locator("#confirm-yes").click()
    expect(page.locator("#bulk-result")).to_contain_text("1 job held · gone: ")
    expect(page.locator("#bulk-result")).to_contain_text("was cancelled, so it cannot be drained")


def test_a_range_is_tagged_and_archived_and_the_palette_finds_a_job(
    page: Page, server: ServeProcess, client: Client, home: Path
) -> None:
    fill_list(home, 4)
    page.goto(server.url)
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
    page.get_by_text("Columns", exact=True).click()
    page.get_by_label("Owner").uncheck()
    expect(page.get_by_role("columnheader", name="Owner")).to_be_hidden()
    page.keyboard.press("Control+k")
    page.keyboard.type("job 2")
    expect(page.locator("#palette-list li")).to_contain_text(["job 2"])
    page.keyboard.press("Enter")
    expect(page.locator("#job-name")).to_have_text("job 2")


def test_slots_are_shown_for_each_kind_of_device_with_their_topology(page: Page, server: ServeProcess) -> None:
    """There is no GPU here: the answer is made up, in the form of the contract."""
    gpus = [_gpu(index) for index in range(4)]
    pairs = [(0, 1, "nvlink"), (2, 3, "nvlink"), (0, 2, "sys"), (0, 3, "sys"), (1, 2, "sys"), (1, 3, "sys")]
    links = [{"first": f"cuda:{a}", "second": f"cuda:{b}", "kind": kind} for a, b, kind in pairs]
    page.route("**/api/v1/devices", lambda route: route.fulfill(json={"items": gpus, "next": None, "links": links}))
    page.reload()
    expect(page.locator(".slots-title")).to_have_text("4 \N{MULTIPLICATION SIGN} NVIDIA H200: 0 in use")
    expect(page.locator(".part")).to_have_text(["free · 4"])
    expect(page.locator(".topology")).to_have_text(
        "NVLink connects cuda:0 cuda:1, cuda:2 cuda:3; the inter-processor link connects all 4 GPUs"
    )
    page.goto(f"{server.url}/machine")
    expect(page.locator("#links td.self")).to_have_count(4)
    expect(page.locator("#links tr").nth(0).locator("td")).to_have_text(["\N{EN DASH}", "nvlink", "sys", "sys"])


def test_a_hostile_name_is_text_and_nothing_else(page: Page, play: Callable[..., PlayedJob]) -> None:
    job = play(HOSTILE)
    job.begin_attempt()
    job.end(JobState.FAILED, Outcome(OutcomeClass.USER_ERROR, HOSTILE, rank=0, file=HOSTILE, line=1))
    row = page.locator("#needs-you tr")
    expect(row.locator(".badge")).to_have_text("failed")
    assert row.locator(".job-name").inner_text() == HOSTILE
    assert row.locator(".note bdi").first.inner_text() == f"{HOSTILE} (rank 0, {HOSTILE}:1)"
    assert page.locator("main img, main script").count() == 0


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
