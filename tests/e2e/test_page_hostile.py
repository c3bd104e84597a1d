"""Markup in everything that a job can write, on every page that shows it: nothing of it is ever run."""

import time
from collections.abc import Callable

from playwright.sync_api import Page, expect

from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess
from rekindle.contract.files import read_json, write_json
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.rank_records import RankError
from rekindle.contract.run_dir.script_files import Checkpoint, Observations
from rekindle.contract.score import Score

_PAYLOAD = '"\'><img src=x onerror="globalThis.pwned=1"><svg onload=globalThis.pwned=1>{{7*7}}${7*7}'
_INJECTED = (
    "document.querySelectorAll('img[src=x], [onerror], [onload]').length + (globalThis.pwned === undefined ? 0 : 1)"
)


def _fill(job: PlayedJob, *, reports: bool) -> None:
    """Every text that a job can leave in its run directory, or that its keeper takes over from there."""
    job.begin_attempt()
    rank = job.run_dir.attempt(1).rank(0)
    status = dict(read_json(rank.status) or {})
    texts = dict.fromkeys(("host", "device", "phase", "notice", "snapshot_policy"), _PAYLOAD)
    write_json(rank.status, {**status, **texts, "step": 5 if reports else None}, durable=False)
    for stream in ("stdout", "stderr"):
        job.write(f"{_PAYLOAD}\n\x1b]8;;javascript:globalThis.pwned=1\x07link\x1b]8;;\x07\n".encode(), stream=stream)
    for step in range(1, 4):
        job.metric(step, **{_PAYLOAD: float(step), "loss": 1.0})
    if reports:
        job.snapshot(40, Score(_PAYLOAD, 1.0))
    checkpoint = Checkpoint(f"/out/{_PAYLOAD}.pt", _PAYLOAD, 10, time.time(), 1)
    write_json(job.run_dir.observed, Observations(attempt=1, checkpoints=[checkpoint], estimated_step=5).to_json())
    environment = {"host": _PAYLOAD, "python": _PAYLOAD, "packages": {_PAYLOAD: _PAYLOAD}}
    write_json(job.run_dir.surroundings, environment)
    write_json(job.run_dir.attempt(1).arguments, ["--x", _PAYLOAD])
    write_json(rank.error, RankError(0, _PAYLOAD, _PAYLOAD, _PAYLOAD, 1, _PAYLOAD, 1, 1.0, 1.0).to_json())


def test_markup_that_a_job_writes_is_text_on_every_page(
    page: Page, server: ServeProcess, play: Callable[..., PlayedJob]
) -> None:
    jobs = [play(f"{_PAYLOAD} {number}", args=[_PAYLOAD], env={"NAME": _PAYLOAD}) for number in range(2)]
    first, second = jobs
    _fill(first, reports=True)
    _fill(second, reports=False)
    page.goto(f"{server.url}/jobs/{second.id}")
    expect(page.locator("#checkpoints")).to_contain_text("<img src=x")
    assert page.evaluate(_INJECTED) == 0
    page.goto(f"{server.url}/jobs/{first.id}")
    expect(page.locator("#log-lines .log-line").first).to_contain_text("<img src=x")
    expect(page.locator("#metric-picker")).to_contain_text("<img src=x")
    assert page.evaluate(_INJECTED) == 0
    outcome = Outcome(
        OutcomeClass.USER_ERROR, _PAYLOAD, rank=0, exception=_PAYLOAD, file=_PAYLOAD, line=1, signal=_PAYLOAD,
        evidence={"traceback": _PAYLOAD, _PAYLOAD: _PAYLOAD},
    )  # fmt: skip
    first.end_attempt(outcome, last_step=5)
    first.retry_in(3600)
    expect(page.locator("#story")).to_contain_text("<img src=x")
    assert page.evaluate(_INJECTED) == 0
    page.goto(f"{server.url}/")
    expect(page.locator("main")).to_contain_text("<img src=x")
    assert page.evaluate(_INJECTED) == 0
    page.goto(f"{server.url}/compare?jobs={first.id},{second.id}")
    expect(page.locator("main")).to_contain_text("<img src=x")
    assert page.evaluate(_INJECTED) == 0
