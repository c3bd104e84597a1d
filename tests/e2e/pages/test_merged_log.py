"""The log of all ranks in one order, filtered, by time and with the cursor of the page."""

import re
import time

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from e2e.played_job import Play, PlayedJob
from e2e.watcher import Watcher
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import JobState
from rekindle.keeper.observers.log_growth import LogTimesWriter

LINES = [
    (1, "stdout", "step 1 of rank 1"),
    (0, "stdout", "step 1 of rank 0"),
    (0, "stderr", "WARNING: <b>the learning rate</b> is high"),
    (1, "stderr", "ValueError: loss=0.25"),
    (0, "stdout", "step 2 of rank 0 loss=0.5"),
]
TEXTS = [text for _, _, text in LINES]

_OPEN_AND_REFRESH = """async (id) => {
    const { MergedLog } = await import("/static/log/merged-log.js");
    const log = new MergedLog(id, { onCursor() {}, onFollowing() {}, isPreview: () => false });
    void log.open({ attempt: 1, level: "debug", q: "", regex: false });
    log.refresh();
}"""


@pytest.fixture
def job(play: Play) -> PlayedJob:
    job = play("digits", ranks=2)
    job.begin_attempt()
    times = LogTimesWriter(job.run_dir.attempt(1), range(2))
    for rank, stream, text in LINES:
        job.write(f"{text}\n".encode(), rank=rank, stream=stream)
        times.record()
    return job


@pytest.fixture
def log_page(page: Page, job: PlayedJob) -> Page:
    page.goto(f"/jobs/{job.id}")
    expect(page.locator("#log-lines .log-line")).to_have_text([TEXTS[1], TEXTS[4]])
    return page


def test_all_ranks_are_read_in_one_order_filtered_and_followed(log_page: Page, job: PlayedJob) -> None:
    last = log_page.locator("#log-lines .log-line").last
    expect(last).to_have_attribute("data-line", "2")
    expect(last).to_have_attribute("data-time", re.compile(r"^\d\d:\d\d:\d\d\.\d$"))
    expect(log_page.locator("#log-zone")).to_have_text(re.compile("^UTC"))
    log_page.get_by_label("Lines", exact=True).select_option("All ranks, both streams")
    lines = log_page.locator("#log-merged-lines .log-line")
    expect(lines).to_have_text(TEXTS)
    expect(lines.locator(".line-source").nth(2)).to_have_attribute("data-source", "0 err")
    expect(log_page.locator("#log-merged b")).to_have_count(0)
    follow = log_page.locator("#log-follow")
    for text in ("Follow", "Following"):
        follow.click()
        expect(follow).to_have_text(text)
    times = LogTimesWriter(job.run_dir.attempt(1), range(2))
    job.write(b"step 3 of rank 1\n\r 10%|#", rank=1)
    times.record()
    expect(lines.last).to_have_text("step 3 of rank 1")
    expect(log_page.locator("#log-merged-unfinished .log-line")).to_have_text([" 10%|#"])
    log_page.get_by_label("Level").select_option("Warnings and errors")
    expect(lines).to_have_text(TEXTS[2:4])
    log_page.get_by_label("Level").select_option("All levels")
    log_page.get_by_role("button", name="Regular expression").click()
    log_page.get_by_label("Search text").fill(r"loss=\d\.\d+$")
    log_page.keyboard.press("Enter")
    expect(lines).to_have_text(TEXTS[3:5])


def test_lines_are_shown_once_where_the_first_answer_comes_after_a_resync(page: Page, job: PlayedJob) -> None:
    held: list[Route] = []
    page.on("request", lambda r: print(r.url) if "log" in r.url and "static" not in r.url else None)
    page.clock.install()
    page.goto(f"/jobs/{job.id}")
    expect(page.locator("#log-lines .log-line")).to_have_count(2)
    is_log = re.compile(r"/jobs/[^/]+/log\?")
    page.route(is_log, lambda route: held.append(route))
    with page.expect_request(is_log):
        page.evaluate(_OPEN_AND_REFRESH, job.id)
    page.clock.run_for(3000)  # the time of several polls
    expect(page.locator("#log-merged-lines")).to_have_attribute("aria-busy", "true")
    assert len(held) == 1, "what is added before the first answer would be shown twice"
    held[0].continue_()
    page.unroute(is_log)
    expect(page.locator("#log-merged-lines .log-line")).to_have_text(TEXTS)


def test_what_could_not_be_read_is_read_again_as_it_was_chosen(log_page: Page, watcher: Watcher) -> None:
    watcher.expect("503")
    log_page.get_by_label("Lines", exact=True).select_option("All ranks, both streams")
    lines = log_page.locator("#log-merged-lines .log-line")
    expect(lines).to_have_text(TEXTS)
    refusal = {"detail": "the database is busy"}
    log_page.route(re.compile(r"/log\?.*level=warning"), lambda route: route.fulfill(status=503, json=refusal), times=1)
    log_page.get_by_label("Level").select_option("Warnings and errors")
    expect(lines).to_have_text(TEXTS[2:4])


def test_a_line_moves_the_cursor_and_a_link_shows_the_same_line(log_page: Page) -> None:
    line = log_page.locator("#log-lines .log-line").first
    expect(line).to_have_attribute("data-time", re.compile(":"))
    line.click()
    expect(log_page).to_have_url(re.compile(r"#t=[\d.]+.*&rank=0&stream=stdout"))
    other = log_page.context.new_page()
    other.goto(log_page.url)
    expect(other.locator("#log-lines .marked")).to_have_text(TEXTS[1])
    other.close()


def test_matches_are_numbered_and_the_log_can_fill_the_window(log_page: Page) -> None:
    log_page.get_by_label("Search text").fill("of rank")
    found = log_page.locator("#log-found")
    for text in ("1 of 2", "2 of 2", "1 of 2"):
        log_page.keyboard.press("Enter")
        expect(found).to_have_text(text)
    log_page.get_by_role("button", name="Wrap").click()
    expect(log_page.locator("#log")).to_have_class(re.compile("no-wrap"))
    log_page.get_by_role("button", name="Full height").click()
    box = log_page.locator("#log-card").bounding_box()
    assert box is not None
    assert (box["x"], box["y"], box["height"]) == (0, 0, 900)
    log_page.keyboard.press("Escape")
    expect(log_page.locator("#log-card")).not_to_have_class(re.compile("full-height"))
    log_page.reload()
    expect(log_page.locator("#log")).to_have_class(re.compile("no-wrap"))


def test_a_log_whose_lines_get_their_times_later_stays_at_its_end_on_a_phone(page: Page, play: Play) -> None:
    job = play("phone", ranks=1)
    job.begin_attempt()
    times = LogTimesWriter(job.run_dir.attempt(1), range(1))
    job.write(b"".join(b"epoch %d loss 0.25 acc 0.75\n" % number for number in range(100)))
    times.record()
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"/jobs/{job.id}")
    last = page.locator("#log-lines .log-line").last
    expect(last).to_contain_text("epoch 99")
    expect(last).to_have_attribute("data-time", re.compile(":"))
    assert last.evaluate("line => line.getClientRects()[0].height") > 30, "the time makes the line wrap"
    assert page.locator("#log").evaluate("log => log.scrollHeight - log.scrollTop - log.clientHeight") < 12
    page.set_viewport_size({"width": 1280, "height": 900})


def test_the_log_moves_with_the_cursor_of_the_axis_and_back(
    page: Page, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _long_job(play, monkeypatch)
    page.set_viewport_size({"width": 1280, "height": 2400})  # axis and log can be seen together
    page.goto(f"/jobs/{job.id}")
    lines, pointed = page.locator("#log-lines .log-line"), page.locator(".pointed")
    expect(lines.last).to_have_text("line 19999 of 0")
    expect(page.locator("#log-follow")).to_have_text("Following")
    expect(lines.last).to_have_attribute("data-time", re.compile(":"))
    _check_columns(page)
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    axis = page.locator("#lane-canvas")
    for across in (0.2, 0.3, 0.4, 0.5):
        _hover(axis, across)
    expect(pointed).to_be_in_viewport()
    shown = int(pointed.inner_text().split()[1])
    assert 2000 < shown < 18_000, shown
    assert len([url for url in requested if "/log?" in url]) <= 2 * 2 * 4, "for each moment twice two, at most"
    assert "#t=" not in page.url
    page.mouse.move(5, 5)
    expect(lines.last).to_have_text("line 19999 of 0")
    expect(lines.last).to_be_in_viewport()
    expect(pointed).to_have_count(0)
    expect(page.locator("#log-follow")).to_have_text("Following")

    expect(lines.last).to_have_attribute("data-time", re.compile(":"))
    lines.last.hover()
    expect(page.locator("#axis-reading")).to_contain_text("attempt 1")
    page.mouse.move(5, 5)
    expect(page.locator("#axis-reading")).to_be_empty()
    page.get_by_label("Lines", exact=True).select_option("All ranks, both streams")
    rows = page.locator("#log-merged-lines .log-line")
    expect(rows.last).to_have_text("line 19999 of 1")
    _hover(axis, 0.5)
    expect(pointed).to_be_in_viewport()
    axis.click(position={"x": 500, "y": 5})
    expect(page.locator("#log-merged .marked")).to_be_in_viewport()
    page.mouse.move(5, 5)
    expect(page.locator("#log-merged .marked")).to_be_in_viewport()
    job.end(JobState.FAILED, Outcome(OutcomeClass.USER_ERROR, "no"))
    expect(page.locator("#log-follow")).to_have_text("Go to the end")
    page.locator("#log-follow").click()
    expect(rows.last).to_be_in_viewport()
    expect(page.locator("#log-follow")).to_be_hidden()


def _long_job(play: Play, monkeypatch: pytest.MonkeyPatch) -> PlayedJob:
    """20,000 lines of each rank within 200 seconds."""
    began = time.time() - 200
    now = began
    monkeypatch.setattr("e2e.played_job.time.time", lambda: now)
    job = play("long", ranks=2)
    job.begin_attempt()
    times = LogTimesWriter(job.run_dir.attempt(1), range(2))
    for number in range(100):
        now = began + 2 * number
        for rank in range(2):
            text = "".join(f"line {line} of {rank}\n" for line in range(200 * number, 200 * number + 200))
            job.write(text.encode(), rank=rank)
        times.record()
        job.sample("train", 200 * number, 0.0, 0.0)
    monkeypatch.undo()
    return job


def _check_columns(page: Page) -> None:
    """Every text begins at the same pixel, however many digits its line number has."""
    lefts = page.locator("#log-lines .log-line").evaluate_all(
        """rows => [...new Set(rows.map(row => {
            const range = document.createRange();
            range.selectNodeContents(row.lastChild);
            return range.getBoundingClientRect().left;
        }))]"""
    )
    assert len(lefts) == 1, lefts
    widths = "log => getComputedStyle(log.querySelector('.log-line'), '::after').width.slice(0, -2) >= 5 * 7"
    assert page.locator("#log-lines").evaluate(widths), "room for five digits"


def _hover(axis: Locator, across: float) -> None:
    box = axis.bounding_box()
    assert box is not None
    axis.hover(position={"x": 64 + across * (box["width"] - 74), "y": 5})
