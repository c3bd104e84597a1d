"""The page of the disk and `rekindle prune` on one server, and a log whose middle was removed in the viewer."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeoutError

from cli_process import rekindle
from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from job_examples import names_in
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.punch_hole import can_punch_holes
from rekindle.contract.states import JobState
from rekindle.keeper.observers.log_limit import LogLimit
from rekindle_service.client import Client
from snapshot_files import write_snapshot

DAY = 24 * 3600
DONE = Outcome(OutcomeClass.SUCCESS, "every rank was done")


def age(home: Path, job: PlayedJob, days: float) -> None:
    """Let the end of the job be so many days ago."""
    with sqlite3.connect(home / "rekindle.db", timeout=30) as database:
        database.execute("UPDATE job SET ended_at = ? WHERE id = ?", (time.time() - days * DAY, job.id))


def test_old_jobs_and_snapshots_are_seen_pruned_and_deleted(
    page: Page, server: ServeProcess, home: Path, client: Client, play: Callable[..., PlayedJob]
) -> None:
    old, older = (PlayedJob(home, name, ranks=1) for name in ("old", "<b>older</b>"))
    busy = play("busy", ranks=1)
    for job in (old, older, busy):
        job.begin_attempt()
        for step in (10, 20):
            write_snapshot(job.run_dir.snapshots, step)
        job.write(b"x" * 200_000)
    for job in (old, older):
        job.end(JobState.SUCCEEDED, DONE)
        until(lambda job=job: client.job(job.id)["state"] == "succeeded", "the job has ended")
        job.close()
    age(home, old, 20)
    age(home, older, 40)

    shown = rekindle(home, "prune", "--dry-run", "--jobs", "30", "--snapshots", "10")
    assert shown.returncode == 0, shown.stderr
    assert "2 items" in shown.stdout
    assert "would be removed." in shown.stdout
    assert rekindle(home, "prune", "--jobs", "30").returncode == 2, "nobody can be asked"
    done = rekindle(home, "prune", "--yes", "--snapshots", "10", "--owner", "nobody-of-that-name")
    assert done.stdout == "Nothing to remove.\n"

    page.goto(f"{server.url}/disk")
    expect(page.locator("#owners tr")).to_have_count(1)
    expect(page.locator("#jobs tr")).to_have_count(3)
    page.get_by_label("Delete finished jobs after").fill("30")
    page.get_by_label("Keep only the latest and best snapshot after").fill("10")
    page.get_by_role("button", name="Show what would be removed").click()
    expect(page.locator("#plan-sentence")).to_contain_text("2 items")
    expect(page.locator("#plan-items tr")).to_have_count(2)
    expect(page.locator("#plan-items")).to_contain_text("<b>older</b>")
    assert names_in(old.run_dir.snapshots) == ["000000000010", "000000000020"]
    page.get_by_role("button", name="Remove all of it").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove", exact=True).click()
    expect(page.locator("#plan-sentence")).to_contain_text("removed.")
    expect(page.locator("#jobs tr")).to_have_count(2)
    until(lambda: names_in(home / "runs") == sorted((old.id, busy.id)), "the old job has gone")
    assert names_in(old.run_dir.snapshots) == ["000000000020"]
    assert names_in(busy.run_dir.snapshots) == ["000000000010", "000000000020"]

    page.get_by_role("button", name="Delete job 1").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.locator("#jobs tr")).to_have_count(1)
    until(lambda: names_in(home / "runs") == [busy.id], "the deleted job has gone")
    assert page.get_by_role("button", name="Delete job 3").count() == 0, "it runs"


def test_a_log_whose_middle_was_removed_is_read_in_the_page_and_on_the_command_line(
    page: Page, server: ServeProcess, home: Path, play: Callable[..., PlayedJob]
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

    page.goto(f"{server.url}/jobs/{job.id}#log/0/stdout/1/{1 << 20}")
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
