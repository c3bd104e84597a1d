"""The log viewer in a browser, fed with what programs really print, and with worse."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess
from rekindle.contract.outcome import Outcome, OutcomeClass

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


@pytest.fixture
def job(play: Callable[..., PlayedJob]) -> PlayedJob:
    job = play("digits", ranks=1)
    job.begin_attempt()
    return job


@pytest.fixture
def open_log(page: Page, server: ServeProcess, job: PlayedJob) -> Callable[[], Page]:
    def open_page() -> Page:
        page.goto(f"{server.url}/jobs/{job.id}")
        expect(page.locator("#log-follow")).to_have_text("Following")
        return page

    return open_page


def test_a_progress_bar_draws_over_itself(open_log: Callable[[], Page], job: PlayedJob) -> None:
    job.write(b"start\n")
    lines = open_log().locator("#log-lines .log-line")
    expect(lines).to_have_text(["start"])
    for percent in range(0, 100, 20):
        job.write(f"\repoch 1: {percent:3d}%".encode())
    expect(lines).to_have_text(["start", "epoch 1:  80%"])
    job.write(b"\rdone\x1b[K\nnext\n")
    expect(lines).to_have_text(["start", "done", "next"])


def test_nested_bars_move_up_and_down(open_log: Callable[[], Page], job: PlayedJob) -> None:
    lines = open_log().locator("#log-lines .log-line")
    job.write(b"outer 0\n\rinner 1\x1b[A\router 1\n\rinner 2")
    expect(lines).to_have_text(["outer 1", "inner 2"])


def test_colours_become_classes_and_other_sequences_vanish(open_log: Callable[[], Page], job: PlayedJob) -> None:
    job.write(b"\x1b[1;31mred\x1b[0m plain \x1b[48;2;0;0;238mon blue\x1b[m\n")
    job.write(b"\x1b]0;a title\x07\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\ \x1b]52;c;c2VjcmV0\x07end\n")
    lines = open_log().locator("#log-lines .log-line")
    expect(lines).to_have_text(["red plain on blue", "link end"])
    expect(lines.first.locator("span").first).to_have_class("bold fg-1")
    expect(lines.first.locator("span").last).to_have_class("bg-4")
    expect(lines.last.locator("a:not(.line-link)")).to_have_count(0)


def test_a_log_that_is_not_followed_any_more_stays_where_it_is(open_log: Callable[[], Page], job: PlayedJob) -> None:
    job.write(b"".join(b"line %d\n" % number for number in range(200)))
    page = open_log()
    expect(page.locator("#log-lines .log-line").last).to_have_text("line 199")
    page.get_by_role("button", name="Following").click()
    page.locator("#log").dispatch_event("scroll")  # of the page's own way to the end, which a busy browser reports late
    page.locator("#log").evaluate(MOVE_BY_LAYOUT)
    job.write(b"more\n")
    expect(page.locator("#log-follow")).to_have_text("New output below ↓")
    expect(page.locator("#log-lines .log-line").last).to_have_text("line 199")


@pytest.mark.parametrize("way", ["End", "wheel"])
def test_a_log_is_followed_again_by_scrolling_down_where_it_is_at_its_end(
    open_log: Callable[[], Page], job: PlayedJob, way: str
) -> None:
    job.write(b"".join(b"line %d\n" % number for number in range(200)))
    page = open_log()
    log, follow = page.locator("#log"), page.locator("#log-follow")
    expect(page.locator("#log-lines .log-line").last).to_have_text("line 199")
    follow.click()
    expect(follow).to_have_text("Follow")
    if way == "End":
        log.press("End")
    else:
        log.hover()
        page.mouse.wheel(0, 100)
    expect(follow).to_have_text("Following")


def test_what_the_user_scrolls_while_lines_are_added_is_noticed(open_log: Callable[[], Page], job: PlayedJob) -> None:
    job.write(b"".join(b"line %d\n" % number for number in range(200)))
    page = open_log()
    expect(page.locator("#log-lines .log-line").last).to_have_text("line 199")
    assert page.evaluate(SCROLL_WHILE_KEPT) == [True, True]


def test_an_empty_stdout_offers_what_loggers_and_progress_bars_write(
    open_log: Callable[[], Page], job: PlayedJob
) -> None:
    job.write(b"INFO epoch 1\n", stream="stderr")
    page = open_log()
    page.get_by_role("button", name="Show stderr").click()
    expect(page.locator("#log-lines .log-line")).to_have_text(["INFO epoch 1"])
    expect(page.get_by_label("Stream")).to_have_value("stderr")
    expect(page.get_by_role("button", name="Show stdout")).to_be_hidden()


def test_markup_and_binary_garbage_are_harmless(open_log: Callable[[], Page], job: PlayedJob) -> None:
    job.write(b"<img src=x onerror=alert(1)><script>alert(2)</script>\n")
    job.write(bytes(range(256)) * 20 + b"\n")
    job.write(b"x" * 200_000 + b"\nalive\n")
    page = open_log()
    expect(page.locator("#log-lines .log-line").last).to_have_text("alive")
    job.write("häßlich ✓ 火\n".encode())
    expect(page.locator("#log-lines .log-line").last).to_have_text("häßlich ✓ 火")
    assert page.locator("#log-lines img, #log-lines script").count() == 0


def test_following_stops_when_the_user_scrolls_up_and_resumes_at_the_end(
    open_log: Callable[[], Page], job: PlayedJob
) -> None:
    job.write(b"".join(b"line %d\n" % number for number in range(300)))
    page = open_log()
    lines = page.locator("#log-lines .log-line")
    expect(lines.last).to_have_text("line 299")
    page.locator("#log").hover()
    page.mouse.wheel(0, -2000)
    expect(page.get_by_role("button", name="Follow", exact=True)).to_be_visible()
    job.write(b"unseen\n")
    expect(page.get_by_role("button", name="New output below")).to_be_visible()
    expect(lines.last).to_have_text("line 299")
    page.locator("#log").evaluate("log => { log.scrollTop = log.scrollHeight; }")
    expect(lines.last).to_have_text("unseen")
    expect(page.get_by_role("button", name="Following")).to_be_visible()


def test_earlier_output_is_fetched_on_demand_back_to_the_first_line(
    open_log: Callable[[], Page], job: PlayedJob
) -> None:
    job.write(b"".join(b"%05d %s\n" % (number, b"x" * 60) for number in range(2000)))
    page = open_log()
    lines = page.locator("#log-lines .log-line")
    expect(lines).to_have_count(500)
    earlier = page.get_by_role("button", name="Load older output")
    earlier.focus()
    page.keyboard.press("Enter")
    while (before := lines.count()) < 2000:
        page.locator("#log").evaluate("log => { log.scrollTop = 0; }")
        expect(lines).not_to_have_count(before)
    expect(earlier).to_be_hidden()
    numbers = page.locator("#log-lines").evaluate(
        "log => [...log.querySelectorAll('.log-line')].map(line => Number(line.textContent.slice(0, 5)))"
    )
    assert numbers == list(range(2000))


def test_the_page_keeps_a_bounded_part_of_an_endless_log(open_log: Callable[[], Page], job: PlayedJob) -> None:
    page = open_log()
    for block in range(12):
        job.write(b"".join(b"%06d\n" % (block * 1000 + number) for number in range(1000)))
        expect(page.locator("#log-lines .log-line").last).to_have_text(f"{block * 1000 + 999:06d}")
    shown = page.locator("#log-lines .log-line").count()
    assert 500 <= shown <= MAX_LINES + 5000  # what is dropped is dropped in chunks of 32 kB
    expect(page.get_by_role("button", name="Load older output")).to_be_attached()


def test_the_log_continues_with_the_next_attempt_and_earlier_ones_can_be_chosen(
    open_log: Callable[[], Page], job: PlayedJob
) -> None:
    job.write(b"of the first\n")
    page = open_log()
    expect(page.locator("#log-lines")).to_have_text("of the first")
    job.begin_attempt(resumed_from_step=10)
    job.write(b"of the second\n")
    expect(page.locator("#log-lines .log-line")).to_have_text(["of the first", "of the second"])
    expect(page.locator("#log-lines .log-divider")).to_have_text("attempt 2")
    page.get_by_label("Attempt", exact=True).select_option("1")
    expect(page.locator("#log-lines .log-line")).to_have_text(["of the first"])


def test_a_restart_does_not_scroll_a_user_further_up(open_log: Callable[[], Page], job: PlayedJob) -> None:
    job.write(b"".join(b"line %d\n" % number for number in range(400)))
    page = open_log()
    lines = page.locator("#log-lines .log-line")
    expect(lines.last).to_have_text("line 399")
    page.locator("#log").hover()
    page.mouse.wheel(0, -3000)
    expect(page.get_by_role("button", name="Follow", exact=True)).to_be_visible()
    top = page.locator("#log").evaluate("log => log.scrollTop")
    job.begin_attempt(resumed_from_step=10)
    job.write(b"of the second\n")
    expect(page.get_by_role("button", name="New output below")).to_be_visible()
    expect(lines.last).to_have_text("line 399")
    assert page.locator("#log").evaluate("log => log.scrollTop") == top
    page.get_by_role("button", name="New output below").click()
    expect(lines.last).to_have_text("of the second")
    expect(page.locator("#log-lines .log-divider")).to_have_text("attempt 2")


def test_an_elastic_job_that_shrinks_leaves_the_logs_of_its_former_ranks(
    page: Page, server: ServeProcess, play: Callable[..., PlayedJob]
) -> None:
    job = play("elastic", ranks=4)
    page.goto(f"{server.url}/jobs/{job.id}")
    rank = page.get_by_label("Rank", exact=True)
    rank.select_option("3")
    job.ranks = 2  # fewer than were asked for
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
    other.goto(f"{server.url}/jobs/{job.id}#log/3/stderr/2/end")
    expect(other.locator("#log-lines .marked")).to_have_text("rank 3 dies")
    other.close()


def test_a_log_opened_while_another_is_read_is_requested_for_its_own_attempt_only(
    page: Page, server: ServeProcess, play: Callable[..., PlayedJob]
) -> None:
    job = play("elastic", ranks=4)
    job.begin_attempt()
    job.write(b"rank 0 speaks\n")
    job.write(b"rank 3 dies\n", rank=3, stream="stderr")
    page.goto(f"{server.url}/jobs/{job.id}")
    expect(page.locator("#log-lines")).to_have_text("rank 0 speaks")
    held: list[Route] = []
    asked: list[str] = []
    page.route("**/ranks/0/log?**", lambda route: held.append(route))
    page.on("request", lambda request: asked.append(request.url))
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
    assert [url for url in asked if "/ranks/3/" in url and "attempt=2" in url] == []


def test_a_gigabyte_is_paged_searched_and_linked_to(
    open_log: Callable[[], Page], job: PlayedJob, server: ServeProcess
) -> None:
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
    other.goto(f"{server.url}/jobs/{job.id}{link}")
    expect(other.locator("#log-lines .marked")).to_have_text("needle 0500")
    expect(other.locator("#log-lines .marked")).to_be_in_viewport()
    other.close()


def test_scrolling_pages_both_ways_and_nothing_is_lost_or_doubled(open_log: Callable[[], Page], job: PlayedJob) -> None:
    job.write(b"".join(b"%06d %s\n" % (number, b"x" * 60) for number in range(20_000)))
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

    expect(page.locator("#log-lines .log-line").last).to_contain_text("019999")
    page_until(0, 0, up=True)
    assert len(shown()) <= MAX_LINES + 1000
    page_until(-1, 19_999, up=False)
    page.locator("#log").press("End")
    expect(page.get_by_role("button", name="Following")).to_be_visible()
