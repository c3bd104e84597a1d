"""The page that compares jobs, and its pure modules."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import httpx2
from playwright.sync_api import Page, expect

from e2e.pages.test_accessibility import found_by_axe
from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess
from e2e.watcher import Watcher
from rekindle.contract.outcome import Outcome, OutcomeClass

HOSTILE = "<img src=x onerror=alert(1)>"


def test_jobs_selected_in_the_queue_are_compared_live(
    page: Page, server: ServeProcess, watcher: Watcher, play: Callable[..., PlayedJob]
) -> None:
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
    page.goto(f"{server.url}/compare?jobs={one.id},0-never-was")
    expect(page.locator("#missing")).to_have_text("Job not found: 0-never-was.")
    expect(page.locator("#compared-jobs th")).to_have_count(2)
    page.goto(f"{server.url}/compare")
    expect(page.locator("#nothing")).to_be_visible()


def test_many_jobs_are_compared_each_in_a_colour_of_its_own(page: Page, server: ServeProcess, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    headers = {"Authorization": f"Bearer {server.token}"}
    base = {"script": str(tmp_path / "train.py"), "device": "cpu", "hold": True}
    with httpx2.Client(base_url=f"{server.url}/api/v1", headers=headers, trust_env=False, timeout=60) as api:
        many = api.post("/experiments", json={"base": base, "matrix": {"--lr": list(range(12))}}).json()
    ids = ",".join(trial["job"] for trial in many["trials"])
    page.goto(f"{server.url}/compare?jobs={ids}")
    expect(page.locator("#compared-jobs th")).to_have_count(13)
    colours = page.locator("#compared-jobs .swatch").evaluate_all(
        "all => new Set(all.map((each) => getComputedStyle(each).backgroundColor)).size"
    )
    assert colours == 12
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_range_in_the_url_may_be_nonsense(page: Page) -> None:
    kept = page.evaluate(
        """async () => {
            const ranges = await import("/static/results/axis-range.js");
            const { formatRanges, parseRanges, rowsOutside, stopsOf, withMovedEnd } = ranges;
            const [lr, name] = [[0.1, 0.01, null, "1e-3"], ["b", "a", true, ""]];
            const dimensions = Object.entries({ lr, name }).map(([name, values]) => ({ name, values }));
            const outside = (...given) => [...rowsOutside(dimensions, parseRanges(given.map(JSON.stringify)))];
            const stops = stopsOf(dimensions[0]);
            return [
                outside(["lr", "0.01", "0.1"]), outside(["lr", "0.01", "0.1"], ["name", "a", "yes"]),
                outside(["lr", "x", "0.1"], ["name", "a"], ["lr", 1, 2], null, ["none", "a", "b"]),
                formatRanges(parseRanges(["{", '["lr","1","2"]'])),
                withMovedEnd(stops, null, "high", -1), withMovedEnd(stops, ["0.01", "0.01"], "low", 1),
                withMovedEnd(stops, ["0.01", "0.1"], "low", -1),
            ];
        }"""
    )
    assert kept == [[2, 3], [2, 3, 0], [], ['["lr","1","2"]'], ["1e-3", "0.01"], ["0.01", "0.01"], None]


def test_options_are_distinguished_from_their_values(page: Page) -> None:
    parsed = page.evaluate(
        """async (lines) => {
            const { parseArguments } = await import("/static/shared/job-parameters.js");
            return lines.map((args) => Object.fromEntries(parseArguments(args)));
        }""",
        [
            ["--lr", "0.1", "--verbose", "--seed=3", "data", "-n", "2"],
            ["--shift", "-0.5", "--", "--x=", "--tag", "a", "--tag", "b"],
            ["first", "second", "--flag"],
        ],
    )
    assert parsed == [
        {"--lr": "0.1", "--verbose": "yes", "--seed": "3", "argument 1": "data", "-n": "2"},
        {"--shift": "-0.5", "argument 1": "--", "--x": "", "--tag": "a b"},
        {"argument 1": "first", "argument 2": "second", "--flag": "yes"},
    ]


def test_words_are_quoted_and_split_as_a_shell_does(page: Page) -> None:
    words = ["plain", "two words", "it's", 'a "quote"', "$HOME", "back\\slash", "", "new\nline", "ünï", "*", "~", "#x"]
    text, back, odd = page.evaluate(
        """async (words) => {
            const { join, split } = await import("/static/shared/shell-words.js");
            const text = join(words);
            return [text, split(text), split(`a\\\\ b "c\\\\"d" 'e\\\\f'g \\\\\\nh`)];
        }""",
        words,
    )
    assert shlex.split(text) == words
    assert back == words
    assert odd == ["a b", 'c"d', "e\\fg", "h"]
