"""The page of the disk and `rekindle prune` on one server."""

import sqlite3
import time
from pathlib import Path

from playwright.sync_api import Page, expect

from cli_process import rekindle
from e2e.played_job import Play, PlayedJob
from e2e.waiting import until
from e2e.watcher import Watcher
from job_examples import names_in
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import JobState
from rekindle_service.client import Client
from snapshot_files import write_snapshot

DAY = 24 * 3600
DONE = Outcome(OutcomeClass.SUCCESS, "every rank was done")


def age(home: Path, job: PlayedJob, days: float) -> None:
    """Let the job have ended ``days`` ago."""
    with sqlite3.connect(home / "rekindle.db", timeout=30) as database:
        database.execute("UPDATE job SET ended_at = ? WHERE id = ?", (time.time() - days * DAY, job.id))


def test_old_jobs_and_snapshots_are_seen_pruned_and_deleted(page: Page, home: Path, client: Client, play: Play) -> None:
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

    page.goto("/disk")
    expect(page.locator("#owners tr")).to_have_count(1)
    rows = page.locator("#jobs tr")
    expect(rows).to_have_count(3)
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
    expect(rows).to_have_count(2)
    until(lambda: names_in(home / "runs") == sorted((old.id, busy.id)), "the old job has gone")
    assert names_in(old.run_dir.snapshots) == ["000000000020"]
    assert names_in(busy.run_dir.snapshots) == ["000000000010", "000000000020"]

    page.get_by_role("button", name=f"Delete job {client.job(old.id)['number']}").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(rows).to_have_count(1)
    until(lambda: names_in(home / "runs") == [busy.id], "the deleted job has gone")
    assert rows.get_by_role("button").count() == 0, "it runs"


def test_a_retry_that_is_refused_says_why(page: Page, watcher: Watcher) -> None:
    """Nothing is stuck here: what the server would say is made up, in the form of the contract."""
    watcher.expect("503")
    stuck = {"path": "/runs/.deleted-a", "reason": "busy", "since": "2026-01-01T00:00:00Z"}
    page.route("**/api/v1/disk", lambda route: route.fulfill(json=route.fetch().json() | {"stuck_deletions": [stuck]}))
    refusal = {"detail": "the database is busy"}
    page.route("**/retry-deletions", lambda route: route.fulfill(status=503, json=refusal))
    page.goto("/disk")
    page.get_by_role("button", name="Retry now").click()
    expect(page.locator("#retry-error")).to_have_text("the database is busy")
