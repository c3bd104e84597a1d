"""A database of every earlier version opens, with what it holds."""

import sqlite3
from pathlib import Path

from job_examples import a_job
from rekindle_service.store import Store


def test_attempts_of_the_first_version_have_had_no_faults(tmp_path: Path) -> None:
    path = tmp_path / "rekindle.db"
    store = Store(path)
    store.migrate()
    job = store.add_job(a_job())
    store.close()
    with sqlite3.connect(path) as old:
        old.execute("ALTER TABLE attempt DROP COLUMN faults")
        old.execute("UPDATE alembic_version SET version_num = '0001'")
        row = (job.id, 1, 1, 1.0, 2, '["cpu:0", "cpu:1"]')
        old.execute(
            "INSERT INTO attempt (job_id, number, run, started_at, world_size, devices) VALUES (?,?,?,?,?,?)", row
        )
    old.close()
    store = Store(path)
    store.migrate()
    try:
        (attempt,) = store.attempts(job.id)
        assert (attempt.world_size, attempt.faults) == (2, [])
    finally:
        store.close()
