"""What only a PostgreSQL can do to a server: restart, refuse, drop a connection, be somebody else's."""

import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine
from sqlmodel import SQLModel

from job_examples import a_job, a_submission, an_experiment, cpu_machine, open_store
from postgres_cluster import PostgresCluster, needs_postgres, postgres_cluster
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.config.home import Home
from rekindle_service.experiments.matrix import Trial
from rekindle_service.experiments.submitter import submit_jobs
from rekindle_service.jobs.idempotency import IdempotencyKey
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.scheduler.recovery import recover_on_startup
from rekindle_service.store import CorruptDatabaseError, StorageError, Store, UnknownCommitError
from rekindle_service.store.job_lists import key_of
from rekindle_service.store.postgres import parse_url
from rekindle_service.store.transfer import move_rows

pytestmark = needs_postgres


@pytest.fixture(scope="module")
def cluster() -> Iterator[PostgresCluster]:
    with postgres_cluster() as running:
        yield running


@pytest.fixture
def url(cluster: PostgresCluster) -> str:
    return cluster.url(cluster.create_database())


@pytest.fixture
def store(url: str, tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path, url)
    yield store
    store.close()


def test_the_migrations_make_the_tables_that_the_rows_describe_with_integers_of_64_bits(store: Store, url: str) -> None:
    engine = create_engine(url)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), SQLModel.metadata) == []
    engine.dispose()
    job = store.add_job(a_job(step=2**40))
    assert store.update_progress(job.id, journal_offset=2**41) is not None
    known = store.job(job.id)
    assert known is not None
    assert (known.step, known.journal_offset) == (2**40, 2**41)


def test_the_overview_is_the_same_on_postgresql(store: Store) -> None:
    failed = store.add_job(a_job(state=JobState.FAILED, ended_at=5.0, owner="ann", tags=["x.y", "z"]))
    held = store.add_job(a_job(intent=JobIntent.HOLD))
    store.experiments.add(an_experiment("x"), [a_job(experiment_id="x", state=JobState.SUCCEEDED, ended_at=6.0)])
    assert store.overview.failures(5, "ann") == ([key_of(failed)], 1)
    assert store.overview.failures(5, "bob") == ([], 0)
    assert store.overview.held(5, None) == ([key_of(held)], 1)
    assert store.overview.unplaced(5, None) == ([], 0)
    assert store.file_job(failed.id, seen=True) is not None
    assert [job.id for job in store.overview.done(5, None)] == [failed.id]
    assert [each.ended_at for each in store.overview.ended_experiments(5, None)] == [6.0]


def test_a_text_that_postgresql_cannot_store_is_stored_without_its_bad_characters(store: Store) -> None:
    outcome = {"class": "ex\0it", "message": "\ud800", "seconds": float("nan"), "ranks": [float("inf"), "ü"]}
    job = store.add_job(a_job(name="a\0b", outcome=outcome))
    known = store.job(job.id)
    assert known is not None
    assert known.name == "a\ufffdb"
    assert known.outcome == {"class": "ex\ufffdit", "message": "\ufffd", "seconds": None, "ranks": [None, "ü"]}
    assert store.bundles_in_use() == set()
    assert store.totals().jobs == {JobState.QUEUED: 1}


def test_a_restart_of_postgresql_is_an_error_that_passes(cluster: PostgresCluster, store: Store) -> None:
    job = store.add_job(a_job())
    cluster.stop()
    for question in (store.feed.version, lambda: store.add_job(a_job())):
        with pytest.raises(StorageError, match=r"postgresql\+psycopg://rekindle@.* cannot be used now .*check that it"):
            question()
    cluster.start()
    assert store.lists.jobs() == [job]
    assert store.add_job(a_job()).number == 2


def test_a_writer_that_waits_too_long_for_another_process_is_told_so(store: Store, url: str, tmp_path: Path) -> None:
    other = Store(tmp_path / "other", url)
    with store.writing(), pytest.raises(StorageError, match="lock timeout"):
        other.add_job(a_job())
    assert other.add_job(a_job()).number == 1
    other.close()


def test_a_full_disk_and_a_standby_are_told_as_such(cluster: PostgresCluster, store: Store) -> None:
    store.add_job(a_job())
    cluster.execute(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN RAISE 'no space left' USING ERRCODE = '53100'; END $$; "
        "CREATE TRIGGER fail BEFORE INSERT ON job EXECUTE FUNCTION fail()",
        database_of(store),
    )
    with pytest.raises(StorageError, match="free some space") as caught:
        store.add_job(a_job())
    assert caught.value.full
    assert len(store.lists.jobs()) == store.feed.version() == 1  # nothing half done
    store.close()
    cluster.execute(f"ALTER DATABASE {database_of(store)} SET default_transaction_read_only = on")
    with pytest.raises(StorageError, match="read-only"):
        store.add_job(a_job())


def database_of(store: Store) -> str:
    return store.name.rpartition("/")[2].partition("?")[0]


def test_one_server_of_one_home_at_a_time(store: Store, url: str, tmp_path: Path) -> None:
    store.hold()
    store.claim("home-a")
    store.claim("home-a")
    other = Store(tmp_path / "other", url)
    with pytest.raises(CorruptDatabaseError, match="in use by another server"):
        other.hold()
    store.close()
    other.hold()
    with pytest.raises(CorruptDatabaseError, match="belongs to another home"):
        other.claim("home-b")
    other.close()


def test_the_password_is_in_no_message(cluster: PostgresCluster, tmp_path: Path) -> None:
    store = Store(tmp_path / "unused", cluster.url("nowhere").replace("rekindle@", "rekindle:geheim@"))
    with pytest.raises(StorageError) as caught:
        store.migrate()
    assert "geheim" not in str(caught.value) + repr(caught.value.__cause__) + store.name
    assert "***" in str(caught.value)
    for wrong in ("mysql://me:geheim@host/db", "postgresql://me:geheim@host", "geheim"):
        with pytest.raises(ValueError, match=r"must be .*postgresql\+psycopg://") as refused:
            parse_url(wrong)
        assert "geheim" not in str(refused.value)


# --- from SQLite


def test_a_home_that_changes_over_keeps_all_rows_once(store: Store, tmp_path: Path) -> None:
    old = open_store(tmp_path)
    old.recovery.count_start()
    jobs = [old.add_job(a_job(outcome={"class": "oom"}), f"key {number}") for number in range(3)]
    old.experiments.add(an_experiment("exp1"), [a_job(experiment_id="exp1", trial={"index": 1}, notice="\0")])
    old.transition(jobs[0].id, JobState.STARTING, expected={JobState.QUEUED}, reason="test")
    before = (old.feed.version(), [old.events(job.id) for job in jobs], old.jobs_in(set(JobState)))
    old.close()
    store.claim("home")
    move_rows(tmp_path / "rekindle.db", store)
    assert [path.name for path in tmp_path.glob("rekindle.db*")] == ["rekindle.db.moved"]
    *others, last = store.jobs_in(set(JobState))
    assert (store.feed.version(), [store.events(job.id) for job in jobs], others) == (*before[:2], before[2][:3])
    assert (last.notice, last.trial, last.experiment_id) == ("\ufffd", {"index": 1}, "exp1")
    assert store.add_job(a_job(), "key 1").id == jobs[1].id
    assert store.add_job(a_job()).number == 5
    open_store(tmp_path).close()
    move_rows(tmp_path / "rekindle.db", store)  # used by a server already
    assert len(store.jobs_in(set(JobState))) == 5
    store.claim("home")


# --- a commit whose answer is lost


@contextmanager
def proxy(target: Path, into: Path) -> Iterator[threading.Event]:  # noqa: C901 a loop for each connection
    """Passes connections on; once the event is set, it passes the next COMMIT on too, and then ends the connection."""
    armed, over = threading.Event(), threading.Event()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(into / target.name))
    listener.listen()
    listener.settimeout(0.1)

    def carry(client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX) as server, selectors.DefaultSelector() as ready:
            server.connect(str(target))
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            inserted = False
            while not over.is_set():
                for key, _ in ready.select(0.1):
                    if not (data := key.fileobj.recv(65536)):  # type: ignore[union-attr]
                        return
                    key.data.sendall(data)
                    inserted = inserted or b"INSERT" in data
                    if key.fileobj is client and b"COMMIT" in data:
                        if armed.is_set() and inserted:
                            armed.clear()
                            server.recv(65536)  # it has been committed
                            return
                        inserted = False

    def accept() -> None:
        while not over.is_set():
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            carriers.append(threading.Thread(target=carry, args=[client]))
            carriers[-1].start()

    carriers = [threading.Thread(target=accept)]
    carriers[0].start()
    try:
        yield armed
    finally:
        over.set()
        for carrier in carriers:
            carrier.join()
        listener.close()


def after(first: Callable[[], None], function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, called after ``first``."""

    def call(*args: Any, **options: Any) -> Any:
        first()
        return function(*args, **options)

    return call


def test_a_job_whose_commit_was_not_confirmed_keeps_its_directory(
    cluster: PostgresCluster, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, code = Home(tmp_path / "home"), tmp_path / "code"
    home.create()
    code.mkdir()
    (code / "train.py").touch()
    with proxy(cluster.socket, tmp_path) as lose_commit:
        store = open_store(tmp_path, url.replace(str(cluster.socket.parent), str(tmp_path)))
        submitter = Submitter(store, home, cpu_machine(2), check_python=lambda _: None, checkout=lambda *_: None)
        key = IdempotencyKey("key", "digest of the request")
        for part, name in ((store, "add_job"), (store.experiments, "add")):
            monkeypatch.setattr(part, name, after(lose_commit.set, getattr(part, name)))
        with pytest.raises(UnknownCommitError, match="connection was lost"):
            submitter.submit(a_submission(code), key)
        repeated = submitter.submit(a_submission(code), key)
        assert repeated.number == 1
        trials = [(Trial({}, 0), a_submission(code))]
        experiment = an_experiment("exp0000001", definition={"sequential": False})
        with pytest.raises(UnknownCommitError):
            submit_jobs(submitter, experiment, trials)
        recover_on_startup(home, store)
        assert {job.id for job in store.lists.jobs()} == {path.name for path in home.runs.iterdir()}
        assert len(store.lists.jobs()) == 2
        assert all(home.run_dir(job.id).spec.exists() for job in store.lists.jobs())
        store.close()
