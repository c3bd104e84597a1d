"""The walk of one user through the pages, with real ranks: submit, watch, kill one, see why, read its log, cancel."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from rekindle_service.client import Client

_SCRIPTS = Path(__file__).parents[1] / "scripts"
_TIMEOUT = 120_000  # milliseconds: real ranks start twice, while other tests run


@pytest.fixture(autouse=True)
def _cancel_all(client: Client) -> Iterator[None]:
    """Also where the test fails half way, no rank outlives it."""
    yield
    for job in client.jobs():
        if job["ended_at"] is None and job["intent"] != "cancel":
            client.cancel(job["id"])


def test_a_job_with_real_ranks_is_submitted_watched_killed_explained_and_cancelled(page: Page) -> None:
    page.goto("/")
    submit(page, "long", arguments="400 0.1")
    watch(page)
    kill(page, rank=1)
    attempts = page.locator("#attempts li")
    expect(attempts).to_have_count(2, timeout=_TIMEOUT)
    expect(attempts.last).to_contain_text("SIGKILL")
    expect(attempts.last).to_contain_text("rank 1")
    expect(page.locator("#job-state")).to_have_text("running", timeout=_TIMEOUT)
    curves = re.compile(r"curves? of \d+ points")
    expect(page.locator("#charts .plot").first).to_have_attribute("aria-description", curves, timeout=_TIMEOUT)
    read_log(page, attempt=1, rank=1)
    page.get_by_role("button", name="Cancel").click()
    page.locator("#confirm-yes").click()
    expect(page.locator("#job-state")).to_have_text("cancelled", timeout=_TIMEOUT)


def submit(page: Page, name: str, *, arguments: str) -> None:
    page.get_by_role("link", name="Submit").click()
    page.get_by_label("Script", exact=True).fill("paced.py")
    page.get_by_text("Advanced:").click()
    page.get_by_label("Code from").select_option("path")
    page.get_by_label("Directory", exact=True).fill(str(_SCRIPTS))
    page.get_by_label("Arguments").fill(arguments)
    page.get_by_label("Ranks", exact=True).fill("2")
    page.get_by_label("Device", exact=True).fill("cpu")
    page.get_by_label("Job name").fill(name)
    page.get_by_label("Every … steps").fill("5")
    page.get_by_role("button", name="Submit the job").click()
    page.wait_for_url("**/jobs/*")
    expect(page.locator("#job-name")).to_have_text(name)


def watch(page: Page) -> None:
    """The ranks' steps move while nobody does anything."""
    expect(page.locator("#job-state")).to_have_text("running", timeout=_TIMEOUT)
    expect(page.locator("#job-progress")).to_be_visible()
    bar = page.get_by_role("progressbar").first
    for further in ("[3-9]|[0-9]{2}", "[5-9]|[0-9]{2}"):
        expect(bar).to_have_attribute("aria-valuenow", re.compile(f"^({further})$"), timeout=_TIMEOUT)


def kill(page: Page, rank: int) -> None:
    page.locator("#chaos").click()
    dialog = page.locator("#confirm")
    dialog.locator("[name=fault]").select_option("kill")
    dialog.locator("[name=rank]").select_option(str(rank))
    page.locator("#confirm-yes").click()
    expect(dialog).to_be_hidden()


def read_log(page: Page, *, attempt: int, rank: int) -> None:
    page.locator("#log-attempt").select_option(str(attempt))
    page.locator("#log-rank").select_option(str(rank))
    expect(page.locator("#log-lines")).to_contain_text(f"rank {rank} trains 400 steps")
