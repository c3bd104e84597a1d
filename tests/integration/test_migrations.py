"""A database of version 0.1.0 opens, with what it holds; an older one is refused."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine

from job_examples import a_job, an_experiment
from rekindle.contract.job import SnapshotPolicy, TargetKind
from rekindle_service.config.unix_users import server_user
from rekindle_service.store import CorruptDatabaseError, Store, migrations
from rekindle_service.store.tables import Job

POLICY = {"every_steps": 5, "every_seconds": None, "every_epochs": None, "keep": 2, "auto": False, "best": "-loss"}
JOB: dict[str, Any] = {
    "id": "abcdefghij", "number": 1, "version": 1, "name": "digits", "kind": "script", "target": "train.py",
    "args": ["--lr", "1"], "env": {"A": "b"}, "python": "/usr/bin/python3", "device": "cpu", "min_ranks": 1,
    "max_ranks": 2, "priority": 7, "after": [], "max_failures": 4, "hang_timeout": 60.0, "time_limit": None,
    "cadence": POLICY, "warm": False, "state": "failed", "intent": "run", "run": 1, "devices": [],
    "journal_offset": 0, "attempt": 1, "restarts": 0, "created_at": 1.0,
    "cell": {"parameters": {"ranks": 2}, "repeat": 0}, "follows": "zzzzzzzzzz", "code": {"bundle": "sha256:0"},
}  # fmt: skip
ATTEMPT = {
    "job_id": "abcdefghij",
    "number": 1,
    "run": 1,
    "started_at": 1.0,
    "durable_step": 9,
    "world_size": 2,
    "devices": [],
}


def write_old_database(path: Path) -> None:
    """A database as version 0.1.0 left it, with a job that had one attempt."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        migrations.upgrade(connection, "0006")
    engine.dispose()
    with sqlite3.connect(path) as old:
        for table, row in (("job", JOB), ("attempt", ATTEMPT)):
            values = [json.dumps(value) if isinstance(value, dict | list) else value for value in row.values()]
            names = ", ".join(f'"{name}"' for name in row)
            old.execute(f"INSERT INTO {table} ({names}) VALUES ({', '.join('?' * len(row))})", values)  # noqa: S608
        old.execute("INSERT INTO sequence VALUES ('told:hook', 3)")
        old.execute("UPDATE sequence SET value = 1 WHERE name IN ('number', 'version')")
    old.close()


def migrated(path: Path) -> Store:
    store = Store(path)
    store.migrate()
    return store


def test_a_job_of_version_0_1_keeps_all_that_was_requested(tmp_path: Path) -> None:
    write_old_database(tmp_path / "rekindle.db")
    store = migrated(tmp_path / "rekindle.db")
    try:
        job = store.job("abcdefghij")
        assert job is not None
        _check_request(job)
        assert (job.trial, job.run_after) == (JOB["cell"], "zzzzzzzzzz")
        assert job.owner == server_user()
        assert (job.spec.code, store.bundles_in_use()) == ({"bundle": "sha256:0"}, {"sha256:0"})
        (attempt,) = store.attempts(job.id)
        assert (attempt.world_size, attempt.snapshot_step, attempt.faults) == (2, 9, [])
        assert store.deliveries.cursor("hook") == 3
        experiment = store.experiments.add(an_experiment("exp0000001"), [a_job(experiment_id="exp0000001")])
        assert (experiment.number, [one.number for one in store.lists.jobs()]) == (1, [2, 1])
    finally:
        store.close()


def _check_request(job: Job) -> None:
    spec = job.spec
    assert (job.name, job.priority, job.max_failures, job.rewind) == ("digits", 7, 4, {})
    assert (spec.kind, spec.target, spec.args, spec.env) == (TargetKind.SCRIPT, "train.py", ["--lr", "1"], {"A": "b"})
    assert (spec.device, spec.min_ranks, spec.max_ranks, spec.hang_timeout, spec.warm) == ("cpu", 1, 2, 60.0, False)
    assert spec.snapshot == SnapshotPolicy(every_steps=5, keep_last=2, monitor="-loss")


def test_failures_from_before_the_overview_are_no_news(tmp_path: Path) -> None:
    path = tmp_path / "rekindle.db"
    write_old_database(path)
    with sqlite3.connect(path) as old:
        old.execute("UPDATE job SET state = 'failed', ended_at = 7.0")
    old.close()
    store = migrated(path)
    assert [(job.seen_at, job.tags, job.note) for job in store.lists.jobs()] == [(7.0, [], "")]
    assert store.overview.failures(5, None) == ([], 0)
    store.close()


def test_a_migration_that_has_run_changes_nothing_when_it_is_asked_for_again(tmp_path: Path) -> None:
    write_old_database(tmp_path / "rekindle.db")
    migrated(tmp_path / "rekindle.db").close()
    store = migrated(tmp_path / "rekindle.db")
    assert [job.id for job in store.lists.jobs()] == ["abcdefghij"]
    store.close()


def test_the_versions_are_those_that_alembic_knows_in_its_order() -> None:
    steps = ScriptDirectory(str(Path(migrations.__file__).parent)).walk_revisions()
    assert migrations.versions() == tuple(reversed([step.revision for step in steps]))


@pytest.mark.parametrize("version", ["0001", "0002", "0003", "0004", "0005"])
def test_a_database_from_before_version_0_1_is_refused_and_not_changed(tmp_path: Path, version: str) -> None:
    path = tmp_path / "rekindle.db"
    write_old_database(path)
    with sqlite3.connect(path) as old:
        old.execute("UPDATE alembic_version SET version_num = ?", (version,))
    old.close()
    store = Store(path)
    with pytest.raises(CorruptDatabaseError, match=rf"rekindle\.db: written by .* before 0\.1\.0 .*'{version}'"):
        store.migrate()
    store.close()
    with sqlite3.connect(path) as old:
        assert old.execute("SELECT version_num, count(*) FROM alembic_version, job").fetchone() == (version, 1)
    old.close()
