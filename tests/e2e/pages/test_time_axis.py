"""The time axis of a job's page."""

import itertools
import json
import re
import time

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from e2e.played_job import Play, PlayedJob
from e2e.waiting import until
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import JobState

HOSTILE = "<img src=x onerror=alert(1)>"

_VIEWS = """async (hashes) => {
    const { formatView, parseView } = await import("/static/job/axis/view-state.js");
    return hashes.map((hash) => {
        const view = parseView(hash);
        return view && formatView(view);
    });
}"""

_RANGES = """async () => {
    const { getView, setView } = await import("/static/job/axis/view-state.js");
    return [{ by: "step", from: 1.2346, to: 7.0004 }, { by: "epoch" }].map((part) => {
        setView(part);
        return [location.hash, getView().from, getView().to];
    });
}"""

_COURSES = """async () => {
    const { epochsOf, unitOf } = await import("/static/charts/chart-data.js");
    const model = await import("/static/job/axis/axis-model.js");
    const { coursesOf, idleOf, positionsWithin, stepAt, timeAt, timesWithin, wholeSpan } = model;
    const interval = (category, started_at, seconds) => ({ category, started_at: iso(started_at), seconds });
    const iso = (seconds) => new Date(seconds * 1000).toISOString();
    const attempt = (number, begin, end, first, last) => ({
        number, started_at: iso(begin), ranks_running_at: iso(begin), ended_at: end && iso(end),
        resumed_from_step: first, last_step: last,
    });
    const attempts = [attempt(1, 1000, 1100, null, 100), attempt(2, 1110, null, 80, null)];
    const steps = { 1: [[1050, 20], [1040, 90]], 2: [[1120, 85], [1130, 95]] };
    const courses = coursesOf(attempts, null, (number) => steps[number], 1140);
    const job = { created_at: iso(0), ended_at: null };
    return {
        steps: [1000, 1100, 1105, 1125, 2000].map((at) => stepAt(courses, at)),
        times: [45, 90, 95, 500].map((step) => timeAt(courses, step)),
        spans: [[courses, "time"], [courses, "step"], [[], "step"]].map(
            ([shown, by]) => wholeSpan(job, shown, unitOf(by, null), 1140)),
        ranges: [[10, 90], [85, 95], [200, 300]].map((range) => timesWithin(courses, unitOf("step", null), range)),
        within: [[1000, 1140], [1101, 1109], [1115, 1125], [1135, 1140]].map(
            (range) => positionsWithin(courses, unitOf("step", null), range)),
        idle: idleOf({ intervals: [
            interval("queued", 0, 1000), interval("training", 1000, 100), interval("waiting", 1100, 3)] }),
        never: idleOf({ intervals: [interval("queued", 0, 1000)] }),
        epochs: [
            [60, 3, []],
            [null, 3, [[1, 0], [20, 0], [21, 1], [40, 1], [41, 2]]],
            [null, null, [[20, 0], [40, 1], [60, 2]]],
        ].map(([steps, epochs, points]) => {
            const { ofStep } = unitOf("epoch", epochsOf({ steps, epochs }, points));
            return [10, 20, 50, 70].map((step) => Number(ofStep(step).toFixed(6)));
        }),
        unknown: [[], [[1, null]], [[1, 3]], [[9, 0], [5, 1]]].map(
            (points) => epochsOf({ steps: null, epochs: 4 }, points)),
        printed: [1, 2.5].map(unitOf("epoch", epochsOf({ steps: null, epochs: 4 }, [[1, 1], [2, 2]])).ofStep),
        back: unitOf("epoch", [[0, 0], [30, 3]]).toStep(1.5),
        fallback: unitOf("epoch", null).by,
    };
}"""


def test_a_url_holds_the_view_and_nonsense_in_it_is_ignored(modules: Page) -> None:
    whole = "#t=1700000000.25&from=10&to=20.5&by=step&attempt=2&rank=1&stream=stderr"
    cases = {
        whole: whole,
        "#rank=3": "#rank=3",
        "#t=-1&rank=1.5&attempt=x&stream=/etc/passwd&by=moon&from=1&<b>=2": "",
        "#from=20&to=10&t=1e999&rank=63": "#rank=63",
        "#log/0/stderr/1/end": None,
        "#log": None,
        "": None,
    }
    assert modules.evaluate(_VIEWS, [*cases]) == [*cases.values()]
    reported = modules.evaluate(
        """async () => {
            const { getView, onView, setView } = await import("/static/job/axis/view-state.js");
            const reported = [];
            onView(({ t, rank }, before) => reported.push([t, rank, before.t]));
            setView({ t: 5 });
            setView({ t: 5 });
            setView({ rank: 1 });
            reported.push(location.hash, getView().rank);
            location.hash = "#t=7";
            await new Promise((resolve) => onView(resolve));
            return reported;
        }"""
    )
    assert reported == [[5, None, None], [5, 1, 5], "#t=5&rank=1", 1, [7, None, 5]]
    assert modules.evaluate(_RANGES) == [
        ["#t=7&from=1.235&to=7&by=step", 1.235, 7],
        ["#t=7&from=1.235&to=7&by=epoch", 1.235, 7],
    ], "a page shows the range of its URL"
    found = modules.evaluate(_COURSES)
    assert found["steps"] == [0, 100, None, 90, None], "a clock that went back does no harm"
    assert found["times"] == [1020, 1125, 1130, None], "of the latest attempt that reached it"
    assert found["epochs"] == [[0.5, 1, 2.5, 3.5]] * 3, "by the job's length, or by metrics of steps or of whole epochs"
    assert found["printed"] == [1, 2.5], "a script that prints its epochs and no steps counts by them"
    assert (found["unknown"], found["back"], found["fallback"]) == ([None] * 4, 15, "step")
    assert found["spans"] == [[0, 1140], [0, 100], [0, 2]]
    assert found["ranges"] == [[1000 + 40 / 9, 1125], [1000 + 40 * 85 / 90, 1130], None], (
        "from the first time that it was reached to the last"
    )
    assert found["within"] == [[0, 100], None, [82.5, 90], [94, 95]]
    assert found["idle"] == [{"from": 0, "to": 1000, "shown": 4}], "a long wait is drawn short, a short one as it is"
    assert found["never"] == [], "a job that only waits"


def test_one_axis_shows_attempts_ranks_snapshots_and_metrics_and_a_link_the_same_moment(
    page: Page, play: Play, chromium: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = _recorded(play, monkeypatch)
    page.goto(f"/jobs/{job.id}")
    lanes, slider = page.locator("#lane-canvas"), page.locator("#axis-slider")
    expect(page.locator("#lane-labels span")).to_have_text(["0", "1", "2"])
    expect(page.locator("#lane-labels .failed")).to_have_text("1")
    expect(page.locator("#timeline-legend")).to_contain_text(f"Ranks:train{HOSTILE}waits for others")
    expect(page.locator("#timeline [data-kind=replayed]")).to_have_count(1)
    expect(page.locator("#usage-charts .chart:visible")).to_have_count(2)

    loss = page.locator("#charts .chart").filter(has_text="loss").locator(".plot")
    expect(loss).to_have_attribute(
        "aria-description", re.compile("of 7 points, step 0 to 60, exit 3 rank 1, \N{MINUS SIGN}10 steps$")
    )
    _click(lanes, _share_of_last_sample(job), 0.5)  # the lane of rank 1
    expect(page).to_have_url(re.compile(r"#t=[\d.]+&attempt=2&rank=1$"))
    reading = page.locator("#axis-reading")
    expect(reading).to_contain_text(re.compile(r"attempt 2 · step \d+ · rank 1: train, waits 90 %, device 50 %"))
    expect(page.get_by_label("Rank", exact=True)).to_have_value("1")
    expect(page.locator("#log-lines")).to_have_text("words of rank 1")

    slider.focus()
    for key in ("ArrowDown", "ArrowLeft", "+"):
        page.keyboard.press(key)
    expect(page).to_have_url(re.compile(r"from=[\d.]+&to=[\d.]+&attempt=2&rank=2"))
    expect(loss).not_to_have_attribute("aria-description", re.compile("step 0 to 60"))
    words, description = reading.inner_text(), loss.get_attribute("aria-description") or ""
    assert slider.get_attribute("aria-valuetext") == words
    _check_link(chromium, page, words, description)

    page.keyboard.press("Escape")
    expect(page.get_by_role("button", name="Show everything")).to_be_hidden()
    page.mouse.move(0, 0)  # else the chart may come to lie under it, and take that for a movement of it
    loss.focus()
    for key in ("Home", *["ArrowRight"] * 4, "+"):
        page.keyboard.press(key)
    expect(page.get_by_role("button", name="Show everything")).to_be_visible()
    expect(loss).to_have_attribute("aria-valuenow", re.compile("^(30|25)$"))
    expect(loss).not_to_have_attribute("aria-description", re.compile("step 0 to 60"))
    loss.dblclick()
    expect(loss).to_have_attribute("aria-description", re.compile("step 0 to 60"))
    page.get_by_label("X axis").select_option("epoch")
    expect(loss).to_have_attribute("aria-description", re.compile(r"epoch 0 to 0\.6"))
    page.get_by_label("X axis").select_option("time")
    _drag(page, lanes, 0.25, 0.75)
    expect(loss).to_have_attribute("aria-description", re.compile(r"points, \d\d:\d\d:\d\d.* to \d\d:"))
    page.get_by_role("button", name="Show everything").click()
    _check_measures(page, job, lanes, reading)

    job.end(JobState.FAILED, Outcome(OutcomeClass.USER_ERROR, "no"))
    expect(page.locator("#job-state")).to_have_text("failed")
    page.get_by_role("button", name="Snapshot of step 20: verified").click()
    clone = page.get_by_role("link", name="Clone from here")
    expect(clone).to_have_attribute("href", f"/submit?clone={job.id}&step=20")
    page.get_by_role("button", name="Resume from here").click()
    expect(page.get_by_role("dialog", name="Resume from step 20?")).to_be_visible()


def test_of_256_ranks_the_one_that_others_wait_for_stands_out(page: Page, play: Play) -> None:
    job = play("wide", ranks=256)
    job.begin_attempt()
    for step in (1, 2):
        job.sample("train", step, *(0.02 if rank == 200 else 0.9 for rank in range(256)))
    page.goto(f"/jobs/{job.id}")
    lanes, reading = page.locator("#lane-canvas"), page.locator("#axis-reading")
    page.get_by_label("Ranks by").select_option("waiting share")
    expect(page.locator("#timeline-legend .heat-scale")).to_be_visible()
    assert page.locator("#lanes").evaluate("host => host.scrollHeight <= host.clientHeight"), "all of them can be seen"
    _click(lanes, 0.999, 200.5 / 256)
    expect(reading).to_contain_text("rank 200: waiting 2 %")
    expect(page.get_by_label("Rank", exact=True)).to_have_value("200")
    expect(page.locator("#lane-labels [data-chosen=true]")).to_have_text("200")
    page.locator("#axis-slider").focus()
    page.keyboard.press("ArrowUp")
    expect(page).to_have_url(re.compile("rank=199"))
    light = """canvas => [199, 200].map((rank) => {
        const x = (64 + (canvas.clientWidth - 74) / 2) * devicePixelRatio;
        const [red, green] = canvas.getContext("2d").getImageData(x, ((rank + 0.5) * canvas.height) / 256, 1, 1).data;
        return red + green;
    })"""

    def is_distinct() -> bool:
        waiting, awaited = lanes.evaluate(light)
        return bool(waiting > 4 * awaited > 0)

    until(is_distinct, "light for waiting, dark for the one that does not")


def test_the_time_without_progress_is_shown_before_it_counts_as_a_hang(page: Page, play: Play) -> None:
    job = play("silent")
    job.begin_attempt()
    job.sample("train", 1, 0.0, 0.0, hang_timeout=300.0, without_progress=125.0)
    page.goto(f"/jobs/{job.id}")
    summary, heartbeat = page.locator("#ranks-summary"), page.locator("#ranks tr").first.locator("td.number").nth(3)
    expect(summary).to_have_text("2 of 2 running, no progress for 2 min, counts as hung after 5 min")
    expect(heartbeat).to_have_attribute("title", "counts as hung after 5 min without progress")
    job.sample("train", 1, 0.0, 0.0, hang_timeout=3600.0)
    expect(summary).to_have_text("2 of 2 running")
    expect(heartbeat).not_to_have_class(re.compile("late"))
    job.sample("train", 1, 0.0, 0.0, hang_timeout=0.5)
    expect(heartbeat).to_have_class(re.compile("late"))


def _recorded(play: Play, monkeypatch: pytest.MonkeyPatch) -> PlayedJob:
    """Two attempts of three ranks within ten minutes; the second repeats 10 steps, and its ranks wait for rank 0."""
    began, passed = time.time() - 600, itertools.count(step=5)
    with monkeypatch.context() as patch:
        patch.setattr("e2e.played_job.time.time", lambda: began + next(passed))
        job = play("digits", ranks=3)
        job.begin_attempt()
        for step in (10, 20, 30):
            job.sample(HOSTILE, step, 0.0, 0.1, 0.0)
            job.metric(step, loss=1 / step)
        job.snapshot(20)
        job.exit_rank(1, exit_code=3)
        failed = Outcome(OutcomeClass.USER_ERROR, "rank 1 failed", rank=1, exit_code=3)
        job.end_attempt(failed, last_step=30, snapshot_step=20)
        job.begin_attempt(resumed_from_step=20)
        for step in (25, 40, 60):
            job.sample("train", step, 0.0, 0.9, 0.9)
            job.metric(step, loss=1 / step)
    job.write(b"words of rank 1\n", rank=1)
    return job


def _share_of_last_sample(job: PlayedJob) -> float:
    """How much of the job's time had passed just before it."""
    begin = json.loads(job.run_dir.journal.read_text().splitlines()[0])["at"]
    last = json.loads(job.run_dir.attempt(2).usage.read_text().splitlines()[-1])["at"]
    return float((last - 2 - begin) / (time.time() - begin))


def _check_measures(page: Page, job: PlayedJob, lanes: Locator, reading: Locator) -> None:
    """Lanes and lines of what each rank used: every sample is of half a core and 1 MiB."""
    across = 64 + _share_of_last_sample(job) * (lanes.evaluate("canvas => canvas.clientWidth") - 74)
    legend, measure = page.locator("#timeline-legend"), page.get_by_label("Ranks by")
    for name, words in (
        ("waiting share", "waiting 90 %"),
        ("memory", "memory 0.001049 GB"),
        ("device use", "device 50 %"),
    ):
        measure.select_option(name)
        expect(legend.locator(".heat-scale")).to_be_visible()
        lanes.hover(position={"x": across, "y": 5})
        expect(reading).to_contain_text(f"rank 0: {'waiting 0 %' if name == 'waiting share' else words}")
        expect(page.locator("#axis-slider > .chart-tip")).to_have_text(reading.inner_text())
    expect(legend).to_contain_text("device 0 %")
    measure.select_option("step time")
    expect(legend).to_contain_text(re.compile(r"step time [\d.]+ s"))
    measure.select_option("phase")
    expect(legend).to_contain_text("waits for others")
    page.locator("#usage-of").select_option("The chosen rank among all")
    memory = page.locator("#usage-charts .chart").filter(has_text="Memory")
    expect(memory.locator(".latest")).to_have_text("rank 2: 0.001049 GB")
    expect(memory.locator(".plot")).to_have_attribute("aria-description", re.compile("^4 curves of "))


def _check_link(chromium: Browser, page: Page, reading: str, description: str) -> None:
    """In another browser, which has the session but nothing else of this one."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, reduced_motion="reduce")
    context.add_cookies(page.context.cookies())
    other = context.new_page()
    other.goto(page.url)
    expect(other.locator("#axis-reading")).to_have_text(reading)
    plot = other.locator("#charts .chart").filter(has_text="loss").locator(".plot")
    expect(plot).to_have_attribute("aria-description", description)
    expect(other.get_by_label("Rank", exact=True)).to_have_value("2")
    context.close()


def _click(lanes: Locator, across: float, down: float) -> None:
    """At shares of the plot, which has margins of 64 and 10 pixels."""
    box = lanes.bounding_box()
    assert box is not None
    lanes.click(position={"x": 64 + across * (box["width"] - 74), "y": down * box["height"]})


def _drag(page: Page, lanes: Locator, begin: float, end: float) -> None:
    box = lanes.bounding_box()
    assert box is not None
    first, last = (box["x"] + 64 + share * (box["width"] - 74) for share in (begin, end))
    page.mouse.move(first, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(last, box["y"] + 5, steps=3)
    page.mouse.up()
