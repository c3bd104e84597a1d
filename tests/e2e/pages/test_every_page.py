"""What holds for every page: it is accessible, fits a phone, shows markup as text, and survives a restarted server."""

import time
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from digest_files import DigestWriter
from e2e.played_job import Play, PlayedJob
from e2e.serve_process import ServeProcess
from e2e.watcher import Watcher, found_by_axe
from rekindle.contract.files import read_json, write_json
from rekindle.contract.job_options import Replay
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.rank_records import RankError
from rekindle.contract.run_dir.script_files import Checkpoint, Observations
from rekindle.contract.run_dir.snapshot_dir import SnapshotScore
from rekindle.contract.states import JobState
from rekindle_service.client import Client

_PHONE = {"width": 390, "height": 844}
_DESKTOP = {"width": 1280, "height": 900}
_TABS = 12
_MARKUP = (
    '"\'><img src=x onerror="globalThis.pwned=1"><svg onload=globalThis.pwned=1>{{7*7}}${7*7} '
    "<script>globalThis.pwned=1</script>\u202eevil"
)
_INJECTED = (
    "document.querySelectorAll('img[src=x], [onerror], [onload]').length + (globalThis.pwned === undefined ? 0 : 1)"
)


@pytest.fixture
def paths(client: Client, play: Play, tmp_path: Path) -> list[str]:
    """Every page with something on it."""
    job = play("digits", args=["--lr", "0.1"])
    job.begin_attempt()
    for step in range(1, 11):
        job.metric(step, loss=1 / step)
    job.write(b"epoch 0 done \x1b[31mwith colours\x1b[0m\n")
    job.snapshot(10)
    job.end_attempt(
        Outcome(OutcomeClass.SIGNAL, "rank 1 was killed by SIGKILL", rank=1, signal="SIGKILL"), last_step=10
    )
    job.begin_attempt(resumed_from_step=10)
    DigestWriter(job.run_dir).write([5, 10])
    replay = play("replay of digits", replay=Replay(job.id, 5), last_step=10)
    replay.begin_attempt()
    DigestWriter(replay.run_dir).write([5])
    done = Outcome(OutcomeClass.SUCCESS, "Every rank finished.")
    replay.end_attempt(done, last_step=10)
    replay.end(JobState.SUCCEEDED, done)
    (tmp_path / "train.py").write_text("")
    base = {"script": str(tmp_path / "train.py"), "device": "cpu", "after": [job.id]}
    request = {"name": "pair", "title": "Which rate?", "base": base, "matrix": {"--lr": [1, 2]}, "measure": ["loss"]}
    pair = client.submit_experiment(request)
    trials = ",".join(trial["job"] for trial in pair["trials"])
    return [
        "/", f"/jobs/{job.id}", "/submit", f"/submit?clone={job.id}", f"/compare?jobs={job.id},{trials}", "/compare",
        f"/jobs/{replay.id}", f"/compare?jobs={job.id},{replay.id}", f"/compare?jobs={job.id}@1,{job.id}@2",
        "/machine", "/disk", "/experiments", f"/experiments/{pair['id']}", "/login",
    ]  # fmt: skip


def test_every_page_fits_a_phone_and_is_accessible_in_both_themes(page: Page, paths: list[str]) -> None:
    complaints: list[str] = []
    for path in paths:
        page.set_viewport_size(_PHONE)
        page.goto(path)
        page.wait_for_selector("main[aria-busy=false], .sign-in main")
        expect(page.locator("#connection:not([data-state=live])")).to_have_count(0)
        assert page.evaluate("document.documentElement.scrollWidth") <= _PHONE["width"], path
        assert page.get_by_role("heading", level=1).count() == 1, path
        assert page.get_by_role("main").count() == 1, path
        if path != "/login":
            shows_its_keys(page)
        page.set_viewport_size(_DESKTOP)
        if path == "/":
            page.get_by_label("Select all jobs").check()
        for theme in ("light", "dark"):
            page.evaluate("(theme) => (document.documentElement.dataset.theme = theme)", theme)
            complaints += [f"{path} in {theme}: {text}" for text in found_by_axe(page)]
    assert complaints == []


def shows_its_keys(page: Page) -> None:
    page.keyboard.press("?")
    overlay = page.get_by_role("dialog", name="Keys")
    expect(overlay).to_contain_text("Palette")
    assert overlay.evaluate("(node) => node.scrollWidth <= node.clientWidth")
    page.keyboard.press("Escape")
    expect(overlay).to_be_hidden()


def test_markup_that_a_job_writes_is_text_on_every_page(page: Page, play: Play) -> None:
    first, second = (play(f"{_MARKUP} {number}", args=[_MARKUP], env={"NAME": _MARKUP}) for number in range(2))
    _fill(first, reports=True)
    _fill(second, reports=False)
    page.goto(f"/jobs/{second.id}")
    shows_text(page, "#checkpoints")
    page.goto(f"/jobs/{first.id}")
    shows_text(page, "#log-lines .log-line", "#metric-picker")
    outcome = Outcome(
        OutcomeClass.USER_ERROR, _MARKUP, rank=0, exception=_MARKUP, file=_MARKUP, line=1, signal=_MARKUP,
        evidence={"traceback": _MARKUP, _MARKUP: _MARKUP},
    )  # fmt: skip
    first.end_attempt(outcome, last_step=5)
    first.retry_in(3600)
    shows_text(page, "#story")
    second.end(JobState.FAILED, Outcome(OutcomeClass.USER_ERROR, _MARKUP, rank=0, file=_MARKUP, line=1))
    page.goto("/")
    row = page.locator("#needs-you tr").filter(has=page.locator(f"a[href='/jobs/{second.id}']"))
    expect(row.locator(".badge")).to_have_text("failed")
    assert row.locator(".job-name").inner_text() == f"{_MARKUP} 1"
    assert row.locator(".note bdi").first.inner_text() == f"{_MARKUP} (rank 0, {_MARKUP}:1)"
    shows_text(page, "main")
    page.goto(f"/compare?jobs={first.id},{second.id}")
    shows_text(page, "main")


def shows_text(page: Page, *selectors: str) -> None:
    """The markup is shown in these elements, and nowhere has it become an element or a script that runs."""
    for selector in selectors:
        expect(page.locator(selector).first).to_contain_text("<img src=x")
    assert page.evaluate(_INJECTED) == 0
    assert page.locator("main img, main script").count() == 0


def _fill(job: PlayedJob, *, reports: bool) -> None:
    """Every text that a job can leave in its run directory, or that its keeper takes over from there."""
    job.begin_attempt()
    rank = job.run_dir.attempt(1).rank(0)
    status = dict(read_json(rank.status) or {})
    texts = dict.fromkeys(("host", "device", "phase", "notice", "snapshot_policy"), _MARKUP)
    write_json(rank.status, {**status, **texts, "step": 5 if reports else None}, durable=False)
    for stream in ("stdout", "stderr"):
        job.write(f"{_MARKUP}\n\x1b]8;;javascript:globalThis.pwned=1\x07link\x1b]8;;\x07\n".encode(), stream=stream)
    for step in range(1, 4):
        job.metric(step, **{_MARKUP: float(step), "loss": 1.0})
    if reports:
        job.snapshot(40, SnapshotScore(_MARKUP, 1.0))
    checkpoint = Checkpoint(f"/out/{_MARKUP}.pt", _MARKUP, 10, time.time(), 1)
    write_json(job.run_dir.observed, Observations(attempt=1, checkpoints=[checkpoint], estimated_step=5).to_json())
    environment = {"host": _MARKUP, "python": _MARKUP, "packages": {_MARKUP: _MARKUP}}
    write_json(job.run_dir.surroundings, environment)
    write_json(job.run_dir.attempt(1).arguments, ["--x", _MARKUP])
    write_json(rank.error, RankError(0, _MARKUP, _MARKUP, _MARKUP, 1, _MARKUP, 1, 1.0, 1.0).to_json())


def test_twelve_tabs_stay_live_while_the_server_is_restarted_under_them(
    page: Page, visitor: BrowserContext, server: ServeProcess, watcher: Watcher, play: Play
) -> None:
    watcher.expect("ERR_")
    job = play("digits")
    job.begin_attempt()
    paths = ("/", f"/jobs/{job.id}", f"/compare?jobs={job.id}")
    tabs = [page, *(visitor.new_page() for _ in range(_TABS - 1))]
    for number, tab in enumerate(tabs):
        tab.goto(paths[number % len(paths)])
        expect(tab.locator("#connection")).to_have_text("Live")
        tab.evaluate("globalThis.loadedOnce = true")
    show_step(tabs, job, 250)
    server.stop()
    for tab in tabs:
        expect(tab.locator("#connection")).not_to_have_text("Live")
    server.start()
    show_step(tabs, job, 500)
    assert all(tab.evaluate("globalThis.loadedOnce") for tab in tabs)


def show_step(tabs: list[Page], job: PlayedJob, step: int) -> None:
    """Every tab shows the step without being touched, also those behind others."""
    for rank in range(job.ranks):
        job.report(rank, step=step)
    for tab in tabs:
        expect(tab.locator("main:not([hidden])")).to_contain_text(f"{step} / 1,000")
