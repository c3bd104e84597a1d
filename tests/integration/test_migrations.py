"""Upgrades of the tables: a version of rekindle with one more migration opens a database of today."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from job_examples import a_job, open_store
from rekindle_service.store import CorruptDatabaseError, StorageError, Store, migrations

DIRECTORY = Path(migrations.__file__).parent
TODAY, LATER = migrations.versions()[-1], "9000"
MIGRATION = f"""
from alembic import op

revision, down_revision = "{LATER}", "{TODAY}"


def upgrade():
    op.execute("UPDATE job SET note = 'upgraded'")
"""  # noqa: S608 - constants only


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """A database of today with one job."""
    store = open_store(tmp_path)
    store.add_job(a_job())
    store.close()
    return store.path


@pytest.fixture
def later_version(database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """rekindle has one more migration than ``database``."""
    directory = tmp_path / "migrations"
    shutil.copytree(DIRECTORY, directory, ignore=shutil.ignore_patterns("__pycache__"))
    (directory / "versions" / f"v{LATER}_later.py").write_text(MIGRATION)
    monkeypatch.setattr(migrations, "_DIRECTORY", directory)
    migrations.versions.cache_clear()
    yield
    migrations.versions.cache_clear()


def version_and_note(path: Path) -> tuple[str, str]:
    with closing(sqlite3.connect(path)) as database:
        (found,) = database.execute("SELECT version_num, note FROM alembic_version, job")
    return found


def test_the_versions_are_those_that_alembic_knows_in_its_order() -> None:
    steps = ScriptDirectory(str(DIRECTORY)).walk_revisions()
    assert migrations.versions() == tuple(reversed([step.revision for step in steps]))


@pytest.mark.usefixtures("later_version")
def test_an_upgrade_runs_once_after_a_backup(database: Path) -> None:
    store = Store(database)
    store.migrate()
    (backup,) = store.backups.of_kind(f"before-{LATER}")
    store.migrate()
    assert store.backups.of_kind() == [backup]
    assert [job.note for job in store.lists.jobs()] == ["upgraded"]
    store.close()
    assert (version_and_note(backup), version_and_note(database)) == ((TODAY, ""), (LATER, "upgraded"))


@pytest.mark.usefixtures("later_version")
def test_no_upgrade_without_a_backup(database: Path) -> None:
    database.with_name("backups").write_text("in the way")
    store = Store(database)
    with pytest.raises(StorageError, match="backups"):
        store.migrate()
    store.close()
    assert version_and_note(database) == (TODAY, "")


@pytest.mark.usefixtures("later_version")
def test_a_new_database_needs_no_backup(tmp_path: Path) -> None:
    store = Store(tmp_path / "new.db")
    store.migrate()
    store.add_job(a_job())
    assert store.backups.of_kind() == []
    store.close()
    assert version_and_note(store.path) == (LATER, "")


@pytest.mark.parametrize("version", ["0001", "0013", "9999"])
def test_a_database_of_an_unknown_version_is_refused_and_not_changed(database: Path, version: str) -> None:
    with closing(sqlite3.connect(database)) as opened, opened:
        opened.execute("UPDATE alembic_version SET version_num = ?", (version,))
    store = Store(database)
    with pytest.raises(
        CorruptDatabaseError, match=rf"rekindle\.db: written by a newer version .*'{version}'.*rekindle rebuild"
    ):
        store.migrate()
    assert store.backups.of_kind() == []
    store.close()
    assert version_and_note(database) == (version, "")
