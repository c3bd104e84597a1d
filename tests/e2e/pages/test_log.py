"""The log viewer in a browser, fed with what programs really print, and with worse."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, Route, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from cli_process import rekindle
from e2e.played_job import Play, PlayedJob
from e2e.waiting import until
from rekindle.contract.files import can_punch_holes
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.keeper.observers.log_growth import LogLimit

MAX_LINES = 3000
MOVE_BY_LAYOUT = """log => new Promise((resolve) => {
  log.addEventListener("scroll", resolve, { once: true });
  log.scrollTop -= 4;
})"""
# The user goes down, and before the browser reports it a page of older lines is put above.
SCROLL_WHILE_KEPT = """async () => {
    const { LogScroller } = await import("/static/log/log-scroller.js");
    const node = document.querySelector("#log");
    const reported = new Promise((resolve) => {
        const scroller = new LogScroller(node, resolve);
        scroller.top = 0;
        node.dispatchEvent(new KeyboardEvent("keydown", { key: "PageDown" }));
        node.scrollTop = 200;
        void scroller.keep(node.querySelector(".log-line:last-child"), () => {
            const first = node.querySelector(".log-line");
            first.before(first.cloneNode(true));
        });
    });
    const { isByUser, isUp } = await reported;
    return [isByUser, !isUp];
}"""

OpenLog = Callable[[], Page]


@pytest.fixture
def job(play: Play) -> PlayedJob:
    job = play("digits", ranks=1)
    job.begin_attempt()
    return job


@pytest.fixture
def open_log(page: Page, job: PlayedJob) -> OpenLog:
    def open_page() -> Page:
        page.goto(f"/jobs/{job.id}")
        expect(page.locator("#log-follow")).to_have_text("Following")
        return page

    return open_page


@pytest.fixture
def long_log(open_log: OpenLog, job: PlayedJob) -> Page:
    """The end of 300 lines, which is followed."""
    job.write(b"".join(b"line %d\n" % number for number in range(300)))
    page = open_log()
    expect(page.locator("#log-lines .log-line").last).to_have_text("line 299")
    return page


def test_progress_bars_draw_over_themselves_and_over_lines_above(open_log: OpenLog, job: PlayedJob) -> None:
    job.write(b"start\n")
    lines = open_log().locator("#log-lines .log-line")
    expect(lines).to_have_text(["start"])
    for percent in range(0, 100, 20):
        job.write(f"\repoch 1: {percent:3d}%".encode())
    expect(lines).to_have_text(["start", "epoch 1:  80%"])
    job.write(b"\rdone\x1b[K\nnext\n")
    expect(lines).to_have_text(["start", "done", "next"])
    job.write(b"outer 0\n\rinner 1\x1b[A\router 1\n\rinner 2")
    expect(lines).to_have_text(["start", "done", "next", "outer 1", "inner 2"])


def test_colours_become_classes_and_sequences_markup_and_garbage_are_harmless(
    open_log: OpenLog, job: PlayedJob
) -> None:
    job.write(b"\x1b[1;31mred\x1b[0m plain \x1b[48;2;0;0;238mon blue\x1b[m\n")
    job.write(b"\x1b]0;a title\x07\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\ \x1b]52;c;c2VjcmV0\x07end\n")
    lines = open_log().locator("#log-lines .log-line")
    expect(lines).to_have_text(["red plain on blue", "link end"])
    expect(lines.first.locator("span").first).to_have_class("bold fg-1")
    expect(lines.first.locator("span").last).to_have_class("bg-4")
    expect(lines.last.locator("a:not(.line-link)")).to_have_count(0)
    job.write(b"<img src=x onerror=alert(1)><script>alert(2)</script>\n")
    job.write(bytes(range(256)) * 20 + b"\n")
    job.write(b"x" * 200_000 + b"\nalive\n")
    expect(lines.last).to_have_text("alive")
    job.write("häßlich ✓ 火\n".encode())
    expect(lines.last).to_have_text("häßlich ✓ 火")
    expect(lines.locator("img, script")).to_have_count(0)


def test_a_search_shows_the_matches_of_all_attempts_and_leads_to_them(open_log: OpenLog, job: PlayedJob) -> None:
    job.write(b"start\nRuntimeError: one\nRuntimeError: two\n")
    job.end_attempt(Outcome(OutcomeClass.COMM, "connection lost"), last_step=5)
    job.begin_attempt()
    job.write(b"all well\n")
    page = open_log()
    expect(page.locator("#log-lines")).to_have_text("all well")
    page.get_by_label("Search text").fill("runtimeerror")
    page.keyboard.press("Enter")
    expect(page.locator("#log-found")).to_have_text("Not found")
    counts = page.locator("#log-attempts")
    expect(counts).to_have_text("0 in attempt 2, 2 in attempt 1")
    page.get_by_role("button", name="2 in attempt 1").click()
    expect(page.locator("#log-lines .marked")).to_have_text("RuntimeError: one")
    expect(page.get_by_label("Attempt", exact=True)).to_have_value("1")
    expect(counts).to_have_text("0 in attempt 2, 2 in attempt 1")
    page.get_by_role("button", name="All ranks").click()
    expect(counts).to_have_text("0 in attempt 2, 2 in attempt 1")
    expect(page.locator("#log-matches")).to_contain_text("attempt 1 · rank 0 · stdout")


def test_a_log_that_is_not_followed_any_more_stays_where_it_is(long_log: Page, job: PlayedJob) -> None:
    long_log.get_by_role("button", name="Following").click()
    long_log.locator("#log").dispatch_event("scroll")  # to the end, by the page itself; a busy browser reports it late
    long_log.locator("#log").evaluate(MOVE_BY_LAYOUT)
    job.write(b"more\n")
    expect(long_log.locator("#log-follow")).to_have_text("New output below ↓")
    expect(long_log.locator("#log-lines .log-line").last).to_have_text("line 299")


def test_a_log_is_followed_again_by_scrolling_down_where_it_is_at_its_end(long_log: Page) -> None:
    log, follow = long_log.locator("#log"), long_log.locator("#log-follow")
    follow.click()
    expect(follow).to_have_text("Follow")
    log.press("End")
    expect(follow).to_have_text("Following")
    follow.click()
    expect(follow).to_have_text("Follow")
    log.hover()
    long_log.mouse.wheel(0, 100)
    expect(follow).to_have_text("Following")


def test_what_the_user_scrolls_while_lines_are_added_is_noticed(long_log: Page) -> None:
    assert long_log.evaluate(SCROLL_WHILE_KEPT) == [True, True]


def test_an_empty_stdout_offers_what_loggers_and_progress_bars_write(open_log: OpenLog, job: PlayedJob) -> None:
    job.write(b"INFO epoch 1\n", stream="stderr")
    page = open_log()
    page.get_by_role("button", name="Show stderr").click()
    expect(page.locator("#log-lines .log-line")).to_have_text(["INFO epoch 1"])
    expect(page.get_by_label("Stream")).to_have_value("stderr")
    expect(page.get_by_role("button", name="Show stdout")).to_be_hidden()


def test_following_stops_when_the_user_scrolls_up_and_resumes_at_the_end(long_log: Page, job: PlayedJob) -> None:
    lines = long_log.locator("#log-lines .log-line")
    long_log.locator("#log").hover()
    long_log.mouse.wheel(0, -2000)
    expect(long_log.get_by_role("button", name="Follow", exact=True)).to_be_visible()
    job.write(b"unseen\n")
    expect(long_log.get_by_role("button", name="New output below")).to_be_visible()
    expect(lines.last).to_have_text("line 299")
    long_log.locator("#log").evaluate("log => { log.scrollTop = log.scrollHeight; }")
    expect(lines.last).to_have_text("unseen")
    expect(long_log.get_by_role("button", name="Following")).to_be_visible()


def test_the_page_keeps_a_bounded_part_of_an_endless_log(open_log: OpenLog, job: PlayedJob) -> None:
    page = open_log()
    for block in range(12):
        job.write(b"".join(b"%06d\n" % (block * 1000 + number) for number in range(1000)))
        expect(page.locator("#log-lines .log-line").last).to_have_text(f"{block * 1000 + 999:06d}")
    shown = page.locator("#log-lines .log-line").count()
    assert 500 <= shown <= MAX_LINES + 5000  # what is dropped is dropped in chunks of 32 kB
    expect(page.get_by_role("button", name="Load older output")).to_be_attached()


def test_a_new_attempt_does_not_scroll_a_user_further_up(long_log: Page, job: PlayedJob) -> None:
    log, lines = long_log.locator("#log"), long_log.locator("#log-lines .log-line")
    log.hover()
    long_log.mouse.wheel(0, -2000)
    expect(long_log.get_by_role("button", name="Follow", exact=True)).to_be_visible()
    top = log.evaluate("log => log.scrollTop")
    job.begin_attempt(resumed_from_step=10)
    job.write(b"of the second\n")
    expect(long_log.get_by_role("button", name="New output below")).to_be_visible()
    expect(lines.last).to_have_text("line 299")
    assert log.evaluate("log => log.scrollTop") == top
    long_log.get_by_role("button", name="New output below").click()
    expect(lines.last).to_have_text("of the second")
    expect(long_log.locator("#log-lines .log-divider")).to_have_text("attempt 2")


def test_an_elastic_job_that_shrinks_leaves_the_logs_of_its_former_ranks(page: Page, play: Play) -> None:
    job = play("elastic", ranks=4)
    page.goto(f"/jobs/{job.id}")
    rank = page.get_by_label("Rank", exact=True)
    rank.select_option("3")
    job.ranks = 2  # fewer than were requested
    job.begin_attempt()
    job.write(b"rank 0 speaks\n")
    expect(rank.locator("option")).to_have_text(["Rank 0", "Rank 1"])
    expect(rank).to_have_value("0")
    expect(page.locator("#log-lines")).to_have_text("rank 0 speaks")
    job.end_attempt(Outcome(OutcomeClass.COMM, "connection lost"), last_step=5)
    job.ranks = 4
    job.begin_attempt(resumed_from_step=5)
    job.write(b"rank 3 dies\n", rank=3, stream="stderr")
    job.end_attempt(Outcome(OutcomeClass.SIGNAL, "rank 3 was killed", rank=3), last_step=9)
    job.ranks = 1
    job.begin_attempt(resumed_from_step=5)
    expect(rank.locator("option")).to_have_text(["Rank 0", "Rank 1 (earlier)", "Rank 2 (earlier)", "Rank 3 (earlier)"])
    page.get_by_role("link", name="Last output of rank 3").click()
    expect(page.locator("#log-lines .marked")).to_have_text("rank 3 dies")
    other = page.context.new_page()
    other.goto(f"/jobs/{job.id}#log/3/stderr/2/end")
    expect(other.locator("#log-lines .marked")).to_have_text("rank 3 dies")
    other.close()


def test_a_log_opened_while_another_is_read_is_requested_for_its_own_attempt_only(page: Page, play: Play) -> None:
    job = play("elastic", ranks=4)
    job.begin_attempt()
    job.write(b"rank 0 speaks\n")
    job.write(b"rank 3 dies\n", rank=3, stream="stderr")
    page.goto(f"/jobs/{job.id}")
    expect(page.locator("#log-lines")).to_have_text("rank 0 speaks")
    held: list[Route] = []
    requested: list[str] = []
    page.route("**/ranks/0/log?**", lambda route: held.append(route))
    page.on("request", lambda request: requested.append(request.url))
    with page.expect_request("**/ranks/0/log?**"):  # what attempt 1 may have written last, before attempt 2
        job.end_attempt(Outcome(OutcomeClass.SIGNAL, "rank 3 was killed", rank=3), last_step=9)
        job.ranks = 1
        job.begin_attempt(resumed_from_step=5)
    page.get_by_role("link", name="Last output of rank 3").click()
    for route in held:
        route.continue_()
    page.unroute("**/ranks/0/log?**")
    expect(page.locator("#log-lines .marked")).to_have_text("rank 3 dies")
    expect(page.locator("#log-lines")).not_to_contain_text("rank 0")
    assert [url for url in requested if "/ranks/3/" in url and "attempt=2" in url] == []


def test_a_gigabyte_is_paged_searched_and_linked_to(open_log: OpenLog, job: PlayedJob) -> None:
    log = job.run_dir.attempt(1).rank(0).log("stdout")
    with log.open("wb") as file:  # sparse: it takes no room
        for offset, word in ((0, b"beginning"), (500_000_000, b"middle"), (700_000_000, b"needle"), (10**9, b"end")):
            file.seek(offset)
            file.write(b"\n" + b"".join(b"%s %04d\n" % (word, number) for number in range(1000)))
    page = open_log()
    lines = page.locator("#log-lines .log-line")
    expect(lines.last).to_have_text("end 0999")
    slider = page.get_by_label("Position in the log")
    slider.fill("5000")  # half of the way
    expect(page.locator("#log-lines")).to_contain_text("middle 0000")
    expect(page.locator("#log-where")).to_contain_text("500.0 MB of 1.0 GB")
    page.get_by_label("Search text").fill("needle 0500")
    page.keyboard.press("Enter")
    marked = page.locator("#log-lines .marked")
    expect(marked).to_have_text("needle 0500")
    expect(marked).to_be_in_viewport()
    link = str(marked.locator(".line-link").get_attribute("href"))
    page.get_by_label("Search text").fill("no such word")
    page.keyboard.press("Enter")
    expect(page.locator("#log-found")).to_have_text("Not found", timeout=60_000)
    page.get_by_role("button", name="Follow", exact=True).click()
    expect(lines.last).to_have_text("end 0999")
    expect(lines.last).to_be_in_viewport()
    other = page.context.new_page()
    other.goto(f"/jobs/{job.id}{link}")
    expect(other.locator("#log-lines .marked")).to_have_text("needle 0500")
    expect(other.locator("#log-lines .marked")).to_be_in_viewport()
    other.close()


def test_scrolling_pages_both_ways_and_nothing_is_lost_or_doubled(open_log: OpenLog, job: PlayedJob) -> None:
    job.write(b"".join(b"%06d %s\n" % (number, b"x" * 60) for number in range(8_000)))
    page = open_log()
    numbers = """log => [...log.querySelectorAll('.log-line')].map(line => Number(line.textContent.slice(0, 6)))"""
    scroll = """(log, up) => { log.scrollTop = up ? 0 : log.scrollHeight; }"""

    def shown() -> list[int]:
        found: list[int] = page.locator("#log-lines").evaluate(numbers)
        assert found == list(range(found[0], found[-1] + 1))
        return found

    def page_until(first_or_last: int, wanted: int, *, up: bool) -> None:
        for _ in range(200):
            if shown()[first_or_last] == wanted:
                return
            before = shown()
            page.locator("#log").evaluate(scroll, up)
            page.wait_for_function(
                "edges => { const all = document.querySelectorAll('#log-lines .log-line');"
                " return Number(all[0].textContent.slice(0, 6)) !== edges[0]"
                " || Number(all[all.length - 1].textContent.slice(0, 6)) !== edges[1]; }",
                arg=[before[0], before[-1]],
            )
        raise AssertionError(f"line {wanted} was never reached")

    expect(page.locator("#log-lines .log-line").last).to_contain_text("007999")
    older, first = page.get_by_role("button", name="Load older output"), shown()[0]
    older.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#log-lines .log-line").first).not_to_contain_text(f"{first:06d}")
    page_until(0, 0, up=True)
    expect(older).to_be_hidden()
    assert len(shown()) <= MAX_LINES + 1000
    page_until(-1, 7_999, up=False)
    page.locator("#log").press("End")
    expect(page.get_by_role("button", name="Following")).to_be_visible()


def test_a_log_whose_middle_was_removed_is_read_in_the_page_and_on_the_command_line(
    page: Page, home: Path, play: Play
) -> None:
    if not can_punch_holes(home):
        pytest.skip("this file system cannot punch holes")
    job = play("flood", ranks=1)
    job.begin_attempt()
    log = job.run_dir.attempt(1).rank(0).log("stdout")
    job.write(b"".join(b"line %07d %s\n" % (number, b"x" * 187) for number in range(10_000)))
    LogLimit(1 << 18, lambda: [log]).apply()
    assert log.stat().st_blocks * 512 < 1 << 19

    printed = rekindle(home, "logs", job.id, "--rank", "0", "--stream", "stdout").stdout.splitlines()
    assert sum("were removed here" in line for line in printed) == 1
    assert "line 0009999 " in printed[-1]
    assert any("line 0000000 " in line for line in printed)
    assert len(printed) < 2000

    page.goto(f"/jobs/{job.id}#log/0/stdout/1/{1 << 20}")
    lines, older = page.locator("#log-lines"), page.get_by_role("button", name="Load older output")
    expect(lines.locator(".log-line").first).to_be_visible()
    until(lambda: paged(lines, "line 0000000", older), "the beginning is shown", 60)
    text = lines.text_content() or ""
    assert text.count("were removed here") == 1
    assert text.index("line 0000000") < text.index("were removed here") < text.index("line 0009")
    page.get_by_role("button", name="Follow").click()
    job.write(b"the end\n")
    expect(lines).to_contain_text("the end")


def paged(lines: Locator, target: str, older: Locator) -> bool:
    """Load one more page, if there is one; whether ``target`` is shown."""
    if target in (lines.text_content() or ""):
        return True
    with suppress(PlaywrightTimeoutError):  # scrolling has loaded the last page meanwhile, and the button has left
        older.press("Enter", timeout=1000)
    return False
