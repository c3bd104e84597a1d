"""The SQLite file while it is in use: removed, replaced, truncated or damaged, and its backups."""

import os
import shutil
import sqlite3
import subprocess
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest

from disks import tmpfs
from job_examples import a_job, open_store
from rekindle_service.store import CorruptDatabaseError, StorageError, Store, UnknownCommitError
from rekindle_service.store.backups import SCHEDULED, back_up, require_database

FILES = ("rekindle.db", "rekindle.db-wal", "rekindle.db-shm")


@pytest.fixture
def store(tmp_path):
    store = open_store(tmp_path)
    yield store
    store.close()


def reopened(store: Store, root: Path) -> list[str]:
    """The ids that the next server finds."""
    store.close()
    other = open_store(root)
    try:
        return [job.id for job in other.lists.jobs()]
    finally:
        other.close()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_all_files_of_the_database_are_for_the_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        store = open_store(tmp_path)
        backup = store.backups.make("test")
        assert {mode(tmp_path / name) for name in FILES} == {mode(backup)} == {0o600}
        assert mode(backup.parent) == 0o700
        store.close()
        (tmp_path / "rekindle.db").chmod(0o644)
        open_store(tmp_path).close()
        assert mode(tmp_path / "rekindle.db") == 0o600
    finally:
        os.umask(before)


@pytest.mark.parametrize("names", [FILES[:1], FILES[1:2], FILES[2:], FILES], ids=["db", "log", "index", "all"])
def test_a_removed_file_is_refused_until_it_is_back(store, tmp_path, names):
    first, away = store.add_job(a_job()), tmp_path / "away"
    away.mkdir()
    for name in names:
        (tmp_path / name).rename(away / name)
    for action in (store.check, store.verify, lambda: store.add_job(a_job())):
        with pytest.raises(StorageError, match=r"nothing is accepted\. Put it back where it was, or stop") as caught:
            action()
        assert caught.value.state == "removed"
    assert all(not (tmp_path / name).exists() for name in names), "nothing was invented"
    for name in names:
        (away / name).rename(tmp_path / name)
    second = store.add_job(a_job())
    assert reopened(store, tmp_path) == [second.id, first.id]


def test_a_change_whose_file_is_removed_before_its_commit_is_not_confirmed(store, tmp_path):
    def change() -> None:
        with store.writing():
            (tmp_path / "rekindle.db").unlink()

    with pytest.raises(UnknownCommitError, match="was removed while the server ran"):
        change()
    with pytest.raises(StorageError, match="rekindle rebuild makes the list of jobs again"):
        store.check()


def test_a_home_that_is_moved_away_and_back_refuses_changes_meanwhile(store, tmp_path):
    home, away = tmp_path / "home", tmp_path / "away"
    home.mkdir()
    store = open_store(home)
    job = store.add_job(a_job())
    home.rename(away)
    with pytest.raises(StorageError, match="Put it back where it was") as caught:
        store.add_job(a_job())
    assert caught.value.state == "removed"
    away.rename(home)
    later = store.add_job(a_job())
    assert reopened(store, home) == [later.id, job.id]


def test_another_file_in_its_place_is_neither_read_nor_written(store, tmp_path):
    job = store.add_job(a_job())
    other = open_store((tmp_path / "other").mkdir() or tmp_path / "other")
    foreign = other.add_job(a_job())
    other.close()
    own = shutil.move(tmp_path / "rekindle.db", tmp_path / "own.db")
    shutil.move(tmp_path / "other" / "rekindle.db", tmp_path / "rekindle.db")
    with pytest.raises(StorageError, match="was replaced by another file while the server ran") as caught:
        store.add_job(a_job())
    assert caught.value.state == "replaced"
    assert [each.id for each in store.lists.jobs()] == [job.id]  # the connection that is open
    moved = shutil.move(tmp_path / "rekindle.db", tmp_path / "other" / "moved.db")
    shutil.move(own, tmp_path / "rekindle.db")
    later = store.add_job(a_job())  # by itself
    assert reopened(store, tmp_path) == [later.id, job.id]
    with closing(sqlite3.connect(moved)) as untouched:
        assert untouched.execute("SELECT id FROM job").fetchall() == [(foreign.id,)]


@pytest.mark.parametrize("damage", ["emptied", "cut in half", "overwritten", "a page of zeros"])
def test_damage_is_found_and_nothing_is_accepted_until_the_server_was_restarted(store, tmp_path, damage):
    for _ in range(200):
        store.add_job(a_job())
    with store.reading() as session:
        session.connection().exec_driver_sql("PRAGMA wal_checkpoint(PASSIVE)").all()
    path, size = tmp_path / "rekindle.db", (tmp_path / "rekindle.db").stat().st_size
    with closing(sqlite3.connect(path)) as other:  # the log is empty, as after a while: the file alone counts
        other.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    store.add_job(a_job())
    match damage:
        case "emptied":
            os.truncate(path, 0)
        case "cut in half":
            os.truncate(path, size // 2)
        case "overwritten":
            path.write_bytes(b"x" * size)
        case _:
            with path.open("r+b") as file:
                file.seek(4096 * 5)
                file.write(bytes(4096 * 8))
    with pytest.raises(StorageError, match=r"is damaged .*; jobs keep running. Stop the server: ") as caught:
        store.verify()
    assert caught.value.state == "damaged"
    for action in (store.check, lambda: store.add_job(a_job())):
        with pytest.raises(StorageError) as caught:
            action()
        assert caught.value.state == "damaged"


def test_a_file_that_somebody_has_compacted_is_not_damaged(store, tmp_path):
    for number in range(300):
        store.add_job(a_job(id=f"job{number:07d}", args=["x" * 2000]))
    store.recovery.withdraw([f"job{number:07d}" for number in range(290)])
    with closing(sqlite3.connect(tmp_path / "rekindle.db")) as other:
        size = (tmp_path / "rekindle.db").stat().st_size
        other.execute("VACUUM")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    assert (tmp_path / "rekindle.db").stat().st_size < size
    assert store.add_job(a_job()).number == 301
    store.check()


def test_a_full_disk_refuses_changes_until_there_is_space_again(tmp_path):
    with tmpfs(tmp_path / "small", "2m"):
        store, added = open_store(tmp_path / "small"), []
        filler = tmp_path / "small" / "filler"
        with suppress(OSError), filler.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        caught = None
        while caught is None:
            try:
                added.append(store.add_job(a_job(args=["x" * 20_000])).id)
            except StorageError as error:
                caught = error
        assert caught.full
        assert [job.id for job in store.lists.jobs(limit=1000)] == added[::-1]
        filler.unlink()
        added.append(store.add_job(a_job(args=["x" * 20_000])).id)
        store.verify()
        assert [job.id for job in store.lists.jobs(limit=1000)] == added[::-1]
        store.close()


# --- backups


def test_a_backup_is_one_whole_file_made_while_others_write(store, tmp_path):
    stop, added = threading.Event(), []

    def write():
        while not stop.is_set():
            added.append(store.add_job(a_job()).id)

    writer = threading.Thread(target=write)
    writer.start()
    copies = []
    while len(copies) < 5:
        seen = list(added)
        copies.append((seen, store.backups.make(SCHEDULED, keep=3)))
    stop.set()
    writer.join()
    for seen, copy in copies[2:]:
        require_database(copy)
        with closing(sqlite3.connect(copy)) as opened:
            ids = {row[0] for row in opened.execute("SELECT id FROM job")}
        assert set(seen) <= ids
    assert store.backups.of_kind(SCHEDULED) == [copy for _, copy in reversed(copies[2:])]
    assert not [path.name for path in store.backups.directory.iterdir() if path.name.startswith(".")]


def test_a_backup_that_cannot_be_written_leaves_nothing(store, tmp_path):
    store.backups.directory.mkdir()
    target = store.backups.directory / "x.db"
    target.with_name(".x.db.partial").mkdir()
    with pytest.raises(StorageError, match="could not be written"):
        back_up(tmp_path / "rekindle.db", target)
    assert not target.exists()


def test_a_backup_is_written_through_no_link_that_waits_in_its_directory(store, tmp_path):
    """The administrator may write it into a directory of several people."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / ".b.db.partial").symlink_to(tmp_path / "of-the-server")
    back_up(tmp_path / "rekindle.db", tmp_path / "shared" / "b.db")
    require_database(tmp_path / "shared" / "b.db")
    assert not (tmp_path / "of-the-server").exists()


@pytest.mark.parametrize("content", [b"", b"text", None])
def test_what_is_no_backup_is_refused(tmp_path, content):
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(CorruptDatabaseError, match="is no backup of rekindle"):
        require_database(path)


def test_the_server_never_opens_the_files_itself(store, tmp_path):
    """It would drop the locks of SQLite (POSIX locks end with any descriptor of the file that is closed)."""
    job = store.add_job(a_job())
    store.check()
    store.verify()
    script = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('BEGIN IMMEDIATE'); print('taken')"
    with store.writing() as session:
        session.merge(job)
        done = subprocess.run(
            ["python3", "-c", script.replace("sys.argv[1]", "sys.argv[1], timeout=0"), str(tmp_path / "rekindle.db")],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert "database is locked" in done.stderr
