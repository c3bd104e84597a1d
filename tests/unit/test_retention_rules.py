"""What each rule removes."""

from rekindle.contract.states import JobState
from rekindle_service.config.settings import RetentionRules as Rules
from rekindle_service.retention.rules import ItemKind, PruneItem, SpareSnapshot, StoredJob, plan_jobs
from rekindle_service.store.retention_store import JobEntry

DAY = 24 * 3600.0
NOW = 1000 * DAY


def a_stored_job(
    name: str, ended: float | None, *, succeeded: bool = False, owner: str | None = None, pinned: bool = False
) -> StoredJob:
    """``ended``: days ago."""
    ended_at = None if ended is None else NOW - ended * DAY
    over = JobState.SUCCEEDED if succeeded else JobState.FAILED
    state = JobState.RUNNING if ended is None else over
    return StoredJob(JobEntry(name, 1, name, owner, state, 1, 0.0, ended_at, {}), 100, pinned)


def plan(rules: Rules, *jobs: StoredJob, snapshots: dict[str, list[SpareSnapshot]] | None = None) -> list[PruneItem]:
    return plan_jobs(jobs, rules, NOW, lambda job: (snapshots or {}).get(job.id, []), lambda _: 10)


def kinds(items: list[PruneItem]) -> list[tuple[str, ItemKind, str]]:
    return [(item.job_id, item.kind, item.name) for item in items]


def test_nothing_is_removed_without_rules_or_by_a_clock_that_was_set_back() -> None:
    assert plan(Rules(), a_stored_job("a", 900), snapshots={"a": [SpareSnapshot("1", 10)]}) == []
    assert plan(Rules(keep_jobs_days=0, keep_logs_days=0, keep_snapshots_days=0), a_stored_job("future", -5)) == []


def test_a_finished_job_is_removed_by_its_age_unless_a_snapshot_of_it_is_pinned() -> None:
    jobs = [a_stored_job("old", 31), a_stored_job("new", 29), a_stored_job("runs", None)]
    items = plan(Rules(keep_jobs_days=30), *jobs, a_stored_job("pinned", 31, pinned=True))
    assert kinds(items) == [("old", ItemKind.JOB, "old")]
    assert items[0].reason == "it ended more than 30 days ago (keep_jobs_days)"


def test_a_job_that_is_removed_whole_is_named_once() -> None:
    rules = Rules(keep_jobs_days=10, keep_snapshots_days=5, keep_logs_days=5, jobs_bytes=0)
    spared = {"a": [SpareSnapshot("1", 10)], "b": [SpareSnapshot("2", 20)]}
    items = plan(rules, a_stored_job("a", 11), a_stored_job("b", 6, pinned=True), snapshots=spared)
    assert kinds(items) == [("a", ItemKind.JOB, "a"), ("b", ItemKind.SNAPSHOT, "2"), ("b", ItemKind.LOGS, "b")]


def test_a_limit_of_space_takes_spared_snapshots_first_then_jobs_that_succeeded_oldest_first() -> None:
    jobs = [a_stored_job("a", 3, succeeded=True), a_stored_job("b", 5), a_stored_job("c", 4, succeeded=True)]
    spared = {"a": [SpareSnapshot("1", 10), SpareSnapshot("2", 20)], "b": [SpareSnapshot("1", 15)]}
    assert kinds(plan(Rules(jobs_bytes=300), *jobs, snapshots=spared)) == []
    first = [("b", ItemKind.SNAPSHOT, "1"), ("a", ItemKind.SNAPSHOT, "1")]
    assert kinds(plan(Rules(jobs_bytes=280), *jobs, snapshots=spared)) == first
    more = [("a", ItemKind.SNAPSHOT, "2"), ("c", ItemKind.JOB, "c")]
    assert kinds(plan(Rules(jobs_bytes=200), *jobs, snapshots=spared)) == first + more
    everything = plan(Rules(jobs_bytes=0), *jobs, snapshots=spared)
    assert {item.job_id for item in everything if item.kind is ItemKind.JOB} == {"a", "c"}, "b may be resumed"


def test_a_limit_for_each_person_touches_nobody_else() -> None:
    jobs = [
        a_stored_job("a", 3, succeeded=True, owner="ada"),
        a_stored_job("b", 9, succeeded=True, owner="bob"),
        a_stored_job("c", None, owner="ada"),
    ]
    items = plan(Rules(owner_bytes=150), *jobs)
    assert kinds(items) == [("a", ItemKind.JOB, "a")]
    assert items[0].reason == "the jobs of ada take more than 150 bytes (owner_bytes)"
