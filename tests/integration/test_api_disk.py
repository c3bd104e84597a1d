"""What takes the disk, what would be pruned, what is, and what cannot be deleted."""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from job_examples import names_in
from rekindle.contract.run_dir.snapshot_dir import MODEL, SnapshotScore, step_name
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.store.tables import AuditEntry
from snapshot_files import write_snapshot

DAY = 24 * 3600
Ended = Callable[..., dict[str, Any]]
Prune = Callable[..., dict[str, Any]]


@pytest.fixture
def ended(server: ApiServer, code: Path) -> Ended:
    """A job that has run once and ended ``days`` ago."""

    def make(days: float, *states: JobState, steps: tuple[int, ...] = (), name: str = "n") -> dict[str, Any]:
        job = server.submit(code, name=name)
        run_dir = server.run_dir(job)
        for step in steps:
            write_snapshot(run_dir.snapshots, step)
        rank_dir = run_dir.attempt(1).rank(0)
        rank_dir.root.mkdir(parents=True)
        rank_dir.log("stdout").write_bytes(b"x" * 100_000)
        rank_dir.metrics.write_bytes(b"{}\n")
        rank_dir.digests.write_bytes(b"{}\n")
        for node in (0, 1):
            run_dir.attempt(1).agent_log_of(node).touch()
            run_dir.attempt(1).log_times_of(node).touch()
        rank_dir.done.write_text("{}")
        server.move(job, *(states or (JobState.CANCELLED,)), ended_at=time.time() - days * DAY)
        return job

    return make


@pytest.fixture
def prune(server: ApiServer) -> Prune:
    def request(**body: Any) -> dict[str, Any]:
        answer = server.api.post("/api/v1/disk/prune", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return request


def purge(server: ApiServer) -> None:
    """Delete what the reconciler and the thread of the deletions would."""
    for tombstone in server.state.store.feed.tombstones(0):
        server.state.retention.deletions.remove_run(tombstone.job_id)
    server.state.retention.deletions.run_due()


def snapshots_of(server: ApiServer, job: dict[str, Any]) -> list[str]:
    return names_in(server.run_dir(job).snapshots)


def things(result: dict[str, Any]) -> list[tuple[str, int | None, str]]:
    return [(item["kind"], item["number"], item["name"]) for item in result["items"]]


def test_the_disk_is_shown_by_kind_owner_and_job(server: ApiServer, ended: Ended) -> None:
    small, large = ended(1), ended(1, steps=(10, 20))
    (server.run_dir(large).code / "output.bin").write_bytes(bytes(500_000))
    report = server.api.get("/api/v1/disk").json()
    assert report["unmeasured"] == 2
    server.state.retention.usage.measure()
    report = server.api.get("/api/v1/disk").json()
    assert report["unmeasured"] == 0
    assert report["jobs"]["code"] >= 500_000
    assert report["jobs"]["logs"] >= 200_000
    assert report["jobs"]["snapshots"] > 0
    assert [(owner["jobs"], owner["bytes"]) for owner in report["owners"]] == [(2, sum(report["jobs"].values()))]
    assert report["database_bytes"] > 0
    assert 0 < report["free_bytes"] < report["total_bytes"]
    jobs = server.api.get("/api/v1/disk/jobs").json()["items"]
    assert [job["id"] for job in jobs] == [large["id"], small["id"]]
    assert jobs[0]["bytes"] == sum(jobs[0]["kinds"].values())
    assert server.api.get("/api/v1/disk/jobs?owner=nobody-of-that-name").json()["items"] == []


def test_a_dry_run_only_lists_what_the_real_run_removes(server: ApiServer, ended: Ended, prune: Prune) -> None:
    old, middle, new = ended(40), ended(20, steps=(1, 2, 3)), ended(1, steps=(1, 2))
    before = sorted(server.state.home.runs.rglob("*"))
    rules = {"keep_jobs_days": 30, "keep_snapshots_days": 10, "keep_logs_days": 10}
    planned = prune(**rules)
    assert planned["dry_run"] is True
    assert sorted(server.state.home.runs.rglob("*")) == before
    assert things(planned) == [
        ("job", old["number"], "n"),
        ("snapshot", middle["number"], step_name(1)),
        ("snapshot", middle["number"], step_name(2)),
        ("logs", middle["number"], "n"),
    ]
    assert planned["bytes"] >= 200_000
    done = prune(dry_run=False, **rules)
    assert (done["items"], done["failures"]) == (planned["items"], [])
    purge(server)
    assert set(names_in(server.state.home.runs)) == {middle["id"], new["id"]}
    assert snapshots_of(server, middle) == [step_name(3)]
    assert snapshots_of(server, new) == [step_name(1), step_name(2)]
    left = server.run_dir(middle).attempt(1).rank(0).root
    assert names_in(left) == ["done.json"], "how the rank ended is kept"
    assert names_in(server.run_dir(middle).attempt(1).root) == ["ranks"]
    assert server.api.get(f"/api/v1/jobs/{middle['id']}/ranks/0/log").text == ""
    reasons = [event.reason for event in server.state.store.events(middle["id"]) if event.kind == "pruned"]
    assert len(reasons) == 1
    assert reasons[0].startswith(f"removed snapshot {step_name(1)}, snapshot {step_name(2)}, the logs: ")
    assert prune(dry_run=False, **rules)["items"] == []


def test_what_a_job_needs_to_continue_is_never_pruned(server: ApiServer, ended: Ended, prune: Prune) -> None:
    damaged = ended(40, steps=(1, 2, 3))
    snapshots = server.run_dir(damaged).snapshots
    (snapshots / step_name(3) / MODEL).write_bytes(b"weightz")  # of the right size
    result = prune(dry_run=False, keep_snapshots_days=10)
    assert things(result) == [("snapshot", damaged["number"], step_name(1))]
    assert [failure["item"]["name"] for failure in result["failures"]] == [step_name(2)]
    assert "no later snapshot is intact" in result["failures"][0]["reason"]
    assert snapshots_of(server, damaged) == [step_name(2), step_name(3)]

    best = ended(40)
    for step, value in ((1, 0.9), (2, 0.1), (3, 0.2), (4, 0.3)):
        write_snapshot(server.run_dir(best).snapshots, step, score=SnapshotScore("accuracy", value))
    assert server.api.put(f"/api/v1/jobs/{best['id']}/snapshots/2/pin").status_code == 204
    (server.run_dir(best).snapshots / ".tmp-1-ab-000000000009").mkdir()
    assert prune(dry_run=False, keep_snapshots_days=10, keep_jobs_days=10)["failures"] == []
    assert snapshots_of(server, best) == [step_name(1), step_name(2), step_name(4)]


def test_nothing_of_a_job_that_may_run_is_pruned(server: ApiServer, ended: Ended, prune: Prune) -> None:
    job = ended(40, steps=(1, 2))
    plan = server.state.retention.plan
    assert server.api.post(f"/api/v1/jobs/{job['id']}/resume").status_code == 202
    everything = dict.fromkeys(("keep_jobs_days", "keep_snapshots_days", "keep_logs_days", "jobs_bytes"), 0)
    assert prune(dry_run=False, **everything)["items"] == []
    server.state.store.set_intent(job["id"], JobIntent.HOLD)
    assert prune(dry_run=False, **everything)["items"] == []
    server.move(job, JobState.CANCELLED, ended_at=1.0)
    planned = plan(server.state.retention.rules)
    assert planned == [], "by the settings of a new server everything is kept"


def test_links_that_a_job_has_planted_lead_pruning_nowhere(
    server: ApiServer, ended: Ended, prune: Prune, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    (outside / "0").mkdir(parents=True)
    (outside / "0" / "stdout.log").write_text("mine")
    write_snapshot(outside / "snapshots", 1)
    write_snapshot(outside / "snapshots", 2)
    job = ended(40)
    run_dir = server.run_dir(job)
    subprocess.run(["rm", "-r", str(run_dir.attempt(1).ranks)], check=True)
    run_dir.attempt(1).ranks.symlink_to(outside)
    run_dir.snapshots.symlink_to(outside / "snapshots")
    prune(dry_run=False, keep_snapshots_days=1, keep_logs_days=1)
    assert (outside / "0" / "stdout.log").read_text() == "mine"
    assert names_in(outside / "snapshots") == [step_name(1), step_name(2)]


def test_old_events_and_tombstones_of_what_is_gone_are_pruned(server: ApiServer, ended: Ended, prune: Prune) -> None:
    kept, gone, stuck = ended(1), ended(1), ended(1)
    for job in (gone, stuck):
        assert server.api.delete(f"/api/v1/jobs/{job['id']}").status_code == 204
    server.state.retention.deletions.remove_run(gone["id"])
    server.state.retention.deletions.run_due()
    assert prune(keep_events_days=1)["items"] == []
    planned = prune(keep_events_days=0)
    assert things(planned) == [("events", None, "")]
    assert prune(dry_run=False, keep_events_days=0)["items"][0]["count"] == planned["items"][0]["count"] > 3
    store = server.state.store
    assert store.events(kept["id"]) == store.events(gone["id"]) == []
    assert [event.kind for event in store.events(stuck["id"])] == ["deleted"]
    assert store.job_state(stuck["id"]) is JobState.CANCELLED


def test_entries_of_the_audit_log_are_pruned_by_age(server: ApiServer, prune: Prune) -> None:
    log = server.state.store.access
    for days in (1, 40):
        log.add_audit([AuditEntry(at=time.time() - days * DAY, via="token", action=f"{days} days old", status=200)])
    assert things(prune(dry_run=False, keep_audit_days=50)) == []
    assert prune(keep_audit_days=30)["items"][0]["count"] == 1
    assert {"1 days old", "40 days old"} <= {entry.action for entry in log.audit(100)}, "nothing was removed yet"
    assert things(prune(dry_run=False, keep_audit_days=30)) == [("audit", None, "")]
    actions = {entry.action for entry in log.audit(100)}
    assert "1 days old" in actions
    assert "40 days old" not in actions


def test_a_clock_that_is_years_ahead_prunes_nothing_for_a_day(server: ApiServer, ended: Ended) -> None:
    job = ended(40)
    pruner = server.state.retention
    pruner.rules = type(pruner.rules)(keep_jobs_days=30)
    server.state.store.retention.set_clock(time.time() - 365 * DAY)
    pruner._pruned_at = float("-inf")
    pruner.prune_if_due()
    assert server.state.store.job(job["id"]) is not None
    pruner._pruned_at, pruner._started_at = float("-inf"), float("-inf")
    pruner.prune_if_due()
    assert server.state.store.job(job["id"]) is None


def test_what_cannot_be_deleted_is_shown_on_the_disk_and_with_the_readiness(server: ApiServer, ended: Ended) -> None:
    job = ended(1)
    point = server.run_dir(job).code / "data"
    point.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "none", str(point)], capture_output=True, check=False).returncode:
        pytest.skip("this user cannot mount")
    try:
        assert server.api.delete(f"/api/v1/jobs/{job['id']}").status_code == 204
        purge(server)
        (stuck,) = server.api.get("/api/v1/disk").json()["stuck_deletions"]
        assert stuck["reason"] == "data: Device or resource busy"
        assert Path(stuck["path"]).name == f".deleted-{job['id']}"
        ready = server.stranger.get("/readyz")
        assert (ready.status_code, ready.json()["warnings"]) == (
            200,
            ["1 directories cannot be deleted; see the page Disk"],
        )
        assert job["id"] not in ready.text
    finally:
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in mounts:
            if mount.startswith(str(server.state.home.runs)):
                subprocess.run(["umount", mount], check=True)
    assert server.api.post("/api/v1/disk/retry-deletions").status_code == 204
    server.state.retention.deletions.run_due()
    assert server.api.get("/api/v1/disk").json()["stuck_deletions"] == []


def test_wrong_rules_are_rejected(server: ApiServer) -> None:
    for body in ({"keep_jobs_days": -1}, {"keep_job_days": 1}, {"jobs_bytes": 1.5}, {"dry_run": "no"}, []):
        assert server.api.post("/api/v1/disk/prune", json=body).status_code == 422, body
