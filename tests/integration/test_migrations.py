"""A database of every earlier version opens, with what it holds."""

import sqlite3
from pathlib import Path

from job_examples import a_job, an_experiment
from rekindle_service.store import Store


def test_attempts_of_the_first_version_have_had_no_faults(tmp_path: Path) -> None:
    path = tmp_path / "rekindle.db"
    store = Store(path)
    store.migrate()
    job = store.add_job(a_job())
    store.close()
    with sqlite3.connect(path) as old:
        old.execute("ALTER TABLE attempt DROP COLUMN faults")
        without_what_the_fourth_and_later_added(old)
        without_experiments(old)
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


def test_jobs_of_the_second_version_belong_to_no_experiment_and_a_new_one_can_be_added(tmp_path: Path) -> None:
    path = tmp_path / "rekindle.db"
    store = Store(path)
    store.migrate()
    job = store.add_job(a_job())
    store.close()
    with sqlite3.connect(path) as old:
        without_what_the_fourth_and_later_added(old)
        without_experiments(old)
        old.execute("UPDATE alembic_version SET version_num = '0002'")
    old.close()
    store = Store(path)
    store.migrate()
    try:
        migrated = store.job(job.id)
        assert migrated is not None
        assert (migrated.experiment_id, migrated.trial, migrated.run_after) == (None, {}, None)
        experiment = store.experiments.add(an_experiment("exp0000001"), [a_job(experiment_id="exp0000001")])
        assert (experiment.number, len(store.experiments.jobs(experiment.id))) == (1, 1)
    finally:
        store.close()


def test_of_the_code_of_jobs_of_the_third_version_no_origin_is_known(tmp_path: Path) -> None:
    path = tmp_path / "rekindle.db"
    store = Store(path)
    store.migrate()
    job = store.add_job(a_job())
    store.close()
    with sqlite3.connect(path) as old:
        without_what_the_fourth_and_later_added(old)
        old.execute("UPDATE alembic_version SET version_num = '0003'")
    old.close()
    store = Store(path)
    store.migrate()
    try:
        migrated = store.job(job.id)
        assert migrated is not None
        assert (migrated.code, store.bundles_in_use()) == ({}, set())
        assert migrated.rewind == {}
    finally:
        store.close()


def without_what_the_fourth_and_later_added(database: sqlite3.Connection) -> None:
    for table, column in (("job", "code"), ("job", "rewind"), ("attempt", "saving_seconds")):
        database.execute(f"ALTER TABLE {table} DROP COLUMN {column}")


def without_experiments(database: sqlite3.Connection) -> None:
    """What the third version added is taken away."""
    database.execute("DROP INDEX ix_job_experiment_id")
    for column in ("experiment_id", "trial", "run_after"):
        database.execute(f"ALTER TABLE job DROP COLUMN {column}")
    database.execute("DROP TABLE experiment")
    database.execute("DELETE FROM sequence WHERE name = 'experiment'")
