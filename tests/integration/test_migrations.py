"""A database of every earlier version opens, with what it holds."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from job_examples import a_job, an_experiment
from rekindle.contract.job import SnapshotPolicy, TargetKind
from rekindle_service.store import Store, migrations
from rekindle_service.store.tables import Job

POLICY = {"every_steps": 5, "every_seconds": None, "every_epochs": None, "keep": 2, "auto": False, "best": "-loss"}
JOB = {
    "id": "abcdefghij", "number": 1, "version": 1, "name": "digits", "kind": "script", "target": "train.py",
    "args": ["--lr", "1"], "env": {"A": "b"}, "python": "/usr/bin/python3", "device": "cpu", "min_ranks": 1,
    "max_ranks": 2, "priority": 7, "after": [], "max_failures": 4, "hang_timeout": 60.0, "time_limit": None,
    "cadence": POLICY, "warm": False, "state": "failed", "intent": "run", "run": 1, "devices": [],
    "journal_offset": 0, "attempt": 1, "restarts": 0, "created_at": 1.0,
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
BY_VERSION: dict[str, dict[str, Any]] = {
    "0003": {"cell": {"parameters": {"ranks": 2}, "repeat": 0}, "follows": "zzzzzzzzzz"},
    "0004": {"code": {"bundle": "sha256:0"}},
}


def written_by(version: str, path: Path) -> None:
    """A database as the migration ``version`` left it, with a job that had one attempt."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        migrations.upgrade(connection, version)
    engine.dispose()
    added = {
        name: value for since, columns in BY_VERSION.items() if since <= version for name, value in columns.items()
    }
    with sqlite3.connect(path) as old:
        for table, row in (("job", {**JOB, **added}), ("attempt", ATTEMPT)):
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


@pytest.mark.parametrize("version", ["0001", "0002", "0003", "0004", "0005", "0006"])
def test_a_job_of_an_earlier_version_keeps_all_that_was_requested(tmp_path: Path, version: str) -> None:
    written_by(version, tmp_path / "rekindle.db")
    store = migrated(tmp_path / "rekindle.db")
    try:
        job = store.job("abcdefghij")
        assert job is not None
        _check_request(job)
        has_trial, has_code = version >= "0003", version >= "0004"
        assert (job.trial != {}, job.run_after) == (has_trial, "zzzzzzzzzz" if has_trial else None)
        assert (job.spec.code, store.bundles_in_use()) == (
            ({"bundle": "sha256:0"}, {"sha256:0"}) if has_code else ({}, set())
        )
        (attempt,) = store.attempts(job.id)
        assert (attempt.world_size, attempt.snapshot_step, attempt.faults) == (2, 9, [])
        assert store.deliveries.cursor("hook") == 3
        experiment = store.experiments.add(an_experiment("exp0000001"), [a_job(experiment_id="exp0000001")])
        assert (experiment.number, [one.number for one in store.jobs()]) == (1, [2, 1])
    finally:
        store.close()


def _check_request(job: Job) -> None:
    spec = job.spec
    assert (job.name, job.priority, job.max_failures, job.rewind) == ("digits", 7, 4, {})
    assert (spec.kind, spec.target, spec.args, spec.env) == (TargetKind.SCRIPT, "train.py", ["--lr", "1"], {"A": "b"})
    assert (spec.device, spec.min_ranks, spec.max_ranks, spec.hang_timeout, spec.warm) == ("cpu", 1, 2, 60.0, False)
    assert spec.snapshot == SnapshotPolicy(every_steps=5, keep_last=2, monitor="-loss")


def test_a_migration_that_has_run_changes_nothing_when_it_is_asked_for_again(tmp_path: Path) -> None:
    written_by("0006", tmp_path / "rekindle.db")
    migrated(tmp_path / "rekindle.db").close()
    store = migrated(tmp_path / "rekindle.db")
    assert [job.id for job in store.jobs()] == ["abcdefghij"]
    store.close()
