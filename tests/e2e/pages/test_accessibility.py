"""Every page in both themes, looked over by axe-core, and at the width of a phone."""

from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess
from e2e.watcher import Watcher
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle_service.client import Client

_PHONE = {"width": 390, "height": 844}


@pytest.fixture
def paths(server: ServeProcess, client: Client, play: Callable[..., PlayedJob], tmp_path: Path) -> list[str]:
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
    (tmp_path / "train.py").write_text("")
    base = {"script": str(tmp_path / "train.py"), "device": "cpu", "after": [job.id]}
    request = {"name": "pair", "title": "Which rate?", "base": base, "matrix": {"--lr": [1, 2]}, "measure": ["loss"]}
    pair = client.submit_experiment(request)
    trials = ",".join(trial["job"] for trial in pair["trials"])
    return [
        "/", f"/jobs/{job.id}", "/submit", f"/submit?clone={job.id}", f"/compare?jobs={job.id},{trials}", "/compare",
        "/machine", "/disk", "/experiments", f"/experiments/{pair['id']}", "/login",
    ]  # fmt: skip


def test_axe_finds_nothing_to_complain_about(page: Page, server: ServeProcess, paths: list[str]) -> None:
    complaints: list[str] = []
    for path in paths:
        visit(page, server, path)
        if path == "/":
            page.get_by_label("Select all jobs").check()
        for theme in ("light", "dark"):
            page.evaluate("(theme) => (document.documentElement.dataset.theme = theme)", theme)
            complaints += [f"{path} in {theme}: {text}" for text in found_by_axe(page)]
    assert complaints == []


def found_by_axe(page: Page) -> list[str]:
    violations = Axe().run(page).response["violations"]
    return [
        f"{each['id']}: {node['html'][:200]} {node['failureSummary']}" for each in violations for node in each["nodes"]
    ]


def test_every_page_fits_a_phone_and_has_one_heading(page: Page, server: ServeProcess, paths: list[str]) -> None:
    page.set_viewport_size(_PHONE)
    for path in paths:
        visit(page, server, path)
        assert page.evaluate("document.documentElement.scrollWidth") <= _PHONE["width"], path
        assert page.get_by_role("heading", level=1).count() == 1, path
        assert page.get_by_role("main").count() == 1, path
        if path != "/login":
            shows_its_keys(page)


def shows_its_keys(page: Page) -> None:
    page.keyboard.press("?")
    overlay = page.get_by_role("dialog", name="Keys")
    expect(overlay).to_contain_text("Palette")
    assert overlay.evaluate("(node) => node.scrollWidth <= node.clientWidth")
    page.keyboard.press("Escape")
    expect(overlay).to_be_hidden()


def test_refused_fields_are_still_readable_to_everybody(page: Page, server: ServeProcess, watcher: Watcher) -> None:
    watcher.expect("422")
    visit(page, server, "/submit")
    page.get_by_label("Priority").fill("x")
    page.get_by_role("button", name="Submit the job").press("Enter")
    expect(page.locator("[aria-invalid]").first).to_be_visible()
    assert found_by_axe(page) == []


def visit(page: Page, server: ServeProcess, path: str) -> None:
    page.goto(server.url + path)
    page.wait_for_selector("main[aria-busy=false], .sign-in main")
    expect(page.locator("#connection:not([data-state=live])")).to_have_count(0)
