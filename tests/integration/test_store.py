import random
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, event
from sqlmodel import SQLModel

from job_examples import a_job, an_experiment, open_store
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.journal import JobEnded
from rekindle.contract.states import HOLDING_SLOTS, TRANSITIONS, JobIntent, JobState
from rekindle_service.store import CorruptDatabaseError, QueueFullError, QueueRoom, StorageError, Store
from rekindle_service.store.projection import RowChanges, StateChange, project
from rekindle_service.store.queue_store import Shown


@pytest.fixture
def store(tmp_path):
    store = open_store(tmp_path)
    yield store
    store.close()


def start(store, job):
    return store.transition(
        job.id, JobState.STARTING, expected={JobState.QUEUED}, reason="test", devices=["cpu:0"], run=job.run + 1
    )


def finish(store, job):
    start(store, job)
    return store.transition(job.id, JobState.FAILED, expected=HOLDING_SLOTS, reason="test")


# --- the file


def test_the_migrations_make_the_tables_that_the_rows_describe(store, tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path / 'rekindle.db'}")
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), SQLModel.metadata) == []
    engine.dispose()


def test_migrating_again_keeps_what_is_there(store):
    job = store.add_job(a_job())
    store.migrate()
    assert store.job(job.id) == job


def test_a_commit_survives_a_power_cut(store):
    with store.reading() as session:
        assert session.connection().exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert session.connection().exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


@pytest.mark.parametrize("damage", ["text", "zeroed page"])
def test_a_damaged_file_is_refused_with_advice(tmp_path, damage):
    path = tmp_path / "rekindle.db"
    if damage == "text":
        path.write_text("this is not a database\n" * 1000)
    else:
        store = open_store(tmp_path)
        for _ in range(100):
            store.add_job(a_job())
        store.close()
        with path.open("r+b") as file:
            file.seek(4096 * 3)
            file.write(bytes(4096 * 4))
    store = Store(path)
    with pytest.raises(CorruptDatabaseError, match=r"rekindle\.db is damaged.*rekindle rebuild"):
        store.migrate()
    store.close()


def test_a_missing_directory_is_a_temporary_error(tmp_path):
    store = Store(tmp_path / "nowhere" / "rekindle.db")
    with pytest.raises(StorageError, match="cannot be used now"):
        store.migrate()
    store.close()


def test_a_full_disk_is_reported_and_leaves_nothing_half_done(store):
    job = store.add_job(a_job())
    with store.writing() as session:  # the only connection, which keeps the limit
        pages = session.connection().exec_driver_sql("PRAGMA page_count").scalar()
        session.connection().exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageError, match="free some space") as caught:
        store.add_job(a_job(args=["x" * 1_000_000]))
    assert caught.value.full
    assert [one.id for one in store.lists.jobs()] == [job.id]
    assert store.update_progress(job.id, step=1).step == 1


def test_a_writer_waits_for_another_process_instead_of_failing(store, tmp_path):
    other = sqlite3.connect(tmp_path / "rekindle.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.5, other.execute, ["COMMIT"])
    release.start()
    assert store.add_job(a_job()).number == 1
    release.join()
    other.close()


# --- jobs


def test_jobs_are_numbered_in_the_order_of_submission_and_no_number_is_used_again(store):
    first, second = store.add_job(a_job()), store.add_job(a_job())
    finish(store, second)
    store.delete_job(second.id)
    assert (first.number, store.add_job(a_job()).number) == (1, 3)


def test_a_repeat_with_the_same_key_gives_the_first_job(store):
    first = store.add_job(a_job(), "key")
    assert store.add_job(a_job(), "key").id == first.id
    assert store.job_by_key("key").id == first.id
    assert store.add_job(a_job(), "other key").id != first.id


def test_a_list_is_latest_first_and_its_next_page_begins_after_a_number(store):
    jobs = [store.add_job(a_job()) for _ in range(5)]
    page = store.lists.jobs(limit=2)
    assert [job.id for job in page] == [jobs[4].id, jobs[3].id]
    assert [job.id for job in store.lists.jobs(limit=9, before=page[-1].number)] == [jobs[2].id, jobs[1].id, jobs[0].id]


def test_a_list_can_be_narrowed_by_state_and_exact_name(store):
    one, two = store.add_job(a_job(name="a")), store.add_job(a_job(name="ab"))
    start(store, two)
    assert [job.id for job in store.lists.jobs(state=JobState.STARTING)] == [two.id]
    assert [job.id for job in store.lists.jobs(name="a")] == [one.id]
    assert store.lists.jobs(name="a' OR 1=1 --") == []


def test_the_queue_is_read_by_number_over_many_pages(store):
    jobs = [a_job(priority=number % 3, experiment_id="exp") for number in range(450)]
    store.experiments.add(an_experiment("exp"), jobs)  # one commit
    start(store, jobs[7])
    assert [job.id for job in store.queue.jobs()] == [job.id for job in jobs if job is not jobs[7]]


def test_rows_of_every_column_come_back_as_they_went_in(store):
    job = store.add_job(
        a_job(args=["--ünï", "", "a b"], env={"K": "v"}, after=["x"], outcome={"class": "oom", "n": [1]})
    )
    assert store.job(job.id) == job
    assert type(store.job(job.id).state) is JobState


# --- changes


@pytest.mark.parametrize("state", JobState)
def test_a_job_changes_its_state_only_as_the_table_of_transitions_allows(store, state):
    job = store.add_job(a_job(state=state))
    for to in JobState:
        if to in TRANSITIONS[state]:
            assert store.transition(job.id, to, expected={state}, reason="r").state is to
            assert store.events(job.id)[-1].from_state == state
            job = store.add_job(a_job(state=state))
        else:
            with pytest.raises(ValueError, match="no way leads"):
                store.transition(job.id, to, expected={state}, reason="r")
            assert store.job(job.id) == job


def test_a_transition_that_expects_another_state_changes_nothing(store):
    job = store.add_job(a_job())
    assert store.transition(job.id, JobState.RUNNING, expected={JobState.STARTING}, reason="r", priority=9) is None
    assert store.transition("nosuchjob0", JobState.RUNNING, expected={JobState.STARTING}, reason="r") is None
    assert store.job(job.id) == job
    assert [event.kind for event in store.events(job.id)] == ["submitted"]


@pytest.mark.parametrize("column", ["state", "version", "number", "id", "no_such_column"])
def test_progress_cannot_set_the_state_or_the_identity(store, column):
    job = store.add_job(a_job())
    with pytest.raises(ValueError, match=column):
        store.update_progress(job.id, **{column: 1})
    assert store.job(job.id) == job


def test_of_many_threads_that_start_one_job_one_succeeds(store):
    job = store.add_job(a_job())
    won = []
    threads = [threading.Thread(target=lambda: won.append(start(store, job))) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([one for one in won if one is not None]) == 1
    assert len([event for event in store.events(job.id) if event.kind == "state"]) == 1


def test_progress_without_a_new_value_is_no_change(store):
    job = store.update_progress(store.add_job(a_job()).id, step=5)
    assert store.update_progress(job.id, step=5).version == job.version
    assert store.update_progress(job.id, step=6).version > job.version


def test_only_ended_jobs_can_be_deleted(store):
    job = store.add_job(a_job())
    assert not store.delete_job(job.id)
    assert not store.delete_job("nosuchjob0")
    finish(store, job)
    assert store.delete_job(job.id)
    assert store.job(job.id) is None
    assert (store.job_state(job.id), store.job_state("nosuchjob0")) == (JobState.FAILED, None)
    assert store.events(job.id)[-1].kind == "deleted"


def test_attempts_are_deleted_with_their_job(store):
    job = start(store, store.add_job(a_job()))
    attempt = AttemptInfo(1, run=1, started_at=1.0)
    store.apply_journal(job, RowChanges(10, attempts={1: attempt}))
    assert [one.number for one in store.attempts(job.id)] == [1]
    store.transition(job.id, JobState.FAILED, expected=HOLDING_SLOTS, reason="r")
    store.delete_job(job.id)
    assert store.attempts(job.id) == []


@pytest.mark.parametrize(
    ("wanted", "then"),
    [
        (JobIntent.DRAIN, JobIntent.HOLD),
        (JobIntent.RUN, JobIntent.RUN),  # resumed
        (JobIntent.CANCEL, JobIntent.CANCEL),
    ],
)
def test_an_intent_set_during_a_drain_is_not_overwritten_by_its_end(store, wanted, then):
    job = start(store, store.add_job(a_job()))
    draining = store.set_intent(job.id, JobIntent.DRAIN)
    store.set_intent(job.id, wanted)
    ended = JobEnded(at=1.0, end=100, run=1, state=JobState.QUEUED, reason="drained")
    row = store.apply_journal(draining, project(draining, [], [ended]))
    assert (row.state, row.intent) == (JobState.QUEUED, then)
    assert store.set_intent(job.id, JobIntent.HOLD, expected={JobIntent.DRAIN}) is None
    assert store.job(job.id).intent is then


def test_the_same_records_of_a_journal_are_applied_once(store):
    job = start(store, store.add_job(a_job()))
    effect = RowChanges(10, states=[StateChange(JobState.RUNNING, "r", 1.0)], columns={"attempt": 1})
    assert store.apply_journal(job, effect).state is JobState.RUNNING
    assert store.apply_journal(job, effect) is None
    assert [event.to_state for event in store.events(job.id)] == ["queued", "starting", "running"]


def test_a_journal_with_an_impossible_transition_changes_nothing(store):
    job = start(store, store.add_job(a_job()))
    impossible = [StateChange(JobState.SUCCEEDED, "r", 1.0), StateChange(JobState.RUNNING, "r", 2.0)]
    with pytest.raises(ValueError, match="no way leads"):
        store.apply_journal(job, RowChanges(10, states=impossible))
    assert store.job(job.id) == job


def test_the_positions_of_queued_jobs_get_a_version_each_and_are_not_written_to_a_started_job(store):
    one, two, held = (store.add_job(a_job()) for _ in range(3))
    before = store.feed.version()
    places = {one.id: Shown(1, "slots", 50.0), two.id: Shown(2, "slots"), held.id: Shown(None, "held")}
    assert store.queue.show(places) == (before + 1, before + 3)
    shown = {job.id: Shown(job.queue_position, job.waiting_for, job.estimated_start_at) for job in store.queue.jobs()}
    assert shown == places
    assert [job.id for job in store.feed.changes(before).jobs] == [one.id, two.id, held.id]
    start(store, two)
    store.queue.show({two.id: Shown(1, "slots")})
    started = store.job(two.id)
    assert (started.queue_position, started.waiting_for, started.estimated_start_at) == (None, None, None)


def test_a_full_queue_accepts_no_more_jobs_and_names_the_limit(store):
    room = QueueRoom("ann", total=3, of_owner=2)
    for _ in range(2):
        store.add_job(a_job(owner="ann"), room=room)
    with pytest.raises(QueueFullError, match="ann may queue at most 2 jobs at once, and 2 wait already"):
        store.add_job(a_job(owner="ann"), room=room)
    store.add_job(a_job(owner="bob"), room=QueueRoom("bob", total=3))
    with pytest.raises(QueueFullError, match=r"this server queues \(max_queued\) at most 3 jobs"):
        store.queue.require_room(QueueRoom("bob", total=3), 1)
    with pytest.raises(QueueFullError, match="these are 9: submit fewer"):
        store.queue.require_room(room, 9)
    assert store.queue.by_owner() == {"ann": 2, "bob": 1}


def test_the_queue_revision_changes_only_after_the_commit(store):
    at_commit = []
    event.listen(store._file.engine, "commit", lambda _: at_commit.append(store.queue_revision))
    before = store.queue_revision
    job = store.add_job(a_job())
    assert at_commit == [before] != [store.queue_revision]
    added = store.queue_revision
    store.update_progress(job.id, step=1)
    assert store.queue_revision == added


def test_who_holds_slots_is_asked_again_after_a_change_that_may_have_been_lost(store):
    store.add_job(a_job(state=JobState.STARTING))
    assert [job.state for job in store.holding()] == [JobState.STARTING]
    with store.reading() as session:  # as a commit that was confirmed to nobody
        session.connection().exec_driver_sql("UPDATE job SET state = 'running'")
        session.connection().commit()
    with pytest.raises(StorageError), store.writing():
        raise StorageError("the disk is full", full=True)
    assert [job.state for job in store.holding()] == [JobState.RUNNING]


# --- the feed


def test_a_follower_of_the_feed_ends_with_every_job_as_it_is(store):
    rng = random.Random(7)
    seen, since, known = {}, 0, []
    for _ in range(300):
        match rng.randrange(5):
            case 0 | 1:
                known.append(store.add_job(a_job()).id)
            case 2 if known:
                store.update_progress(rng.choice(known), step=rng.randrange(100))
            case 3 if known:
                store.set_intent(rng.choice(known), rng.choice(list(JobIntent)))
            case 4 if known:
                job = store.job(rng.choice(known))
                if job is not None and job.state is JobState.QUEUED:
                    finish(store, job)
                elif job is not None:
                    store.delete_job(job.id)
        if rng.randrange(4) == 0:
            since = follow(store, seen, since, limit=3)
    while (latest := follow(store, seen, since, limit=3)) != since:
        since = latest
    assert seen == {job.id: job for job in store.lists.jobs(limit=1000)}


def follow(store, seen, since, limit):
    jobs, deleted, latest = store.feed.changes(since, limit)
    assert latest >= since
    assert [job.version for job in jobs] == sorted(job.version for job in jobs)
    seen.update({job.id: job for job in jobs})
    for tombstone in deleted:
        seen.pop(tombstone.job_id, None)
    return latest


def test_versions_increase_in_the_order_of_commits_with_many_threads(store):
    job = store.add_job(a_job())
    read = []

    def write(number):
        for step in range(20):
            store.update_progress(job.id, step=number * 1000 + step)

    def follow_feed():
        since = 0
        while threads[0].is_alive():
            jobs, _, since = store.feed.changes(since)
            read.extend(one.version for one in jobs)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    follower = threading.Thread(target=follow_feed)
    for thread in [*threads, follower]:
        thread.start()
    for thread in [*threads, follower]:
        thread.join()
    assert read == sorted(set(read))
    assert store.job(job.id).version == store.feed.version() == 81


# --- a kill in the middle

_WRITER = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from job_examples import a_job
from rekindle.contract.states import JobState
from rekindle_service.store import Store
store = Store(Path(sys.argv[1]) / "rekindle.db")
for number in range(10**9):
    job = store.add_job(a_job(id=f"{sys.argv[3]}{number:09d}"))
    store.transition(job.id, JobState.STARTING, expected={JobState.QUEUED}, reason="r", step=1)
    print(job.id, flush=True)
"""


def test_every_change_acknowledged_before_a_kill_is_complete(store, tmp_path):
    for prefix in "abc":
        command = [sys.executable, "-c", _WRITER, str(tmp_path), str(Path(__file__).parent.parent), prefix]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            acknowledged = [writer.stdout.readline().strip() for _ in range(20)]
            writer.kill()
            acknowledged += writer.stdout.read().split()[:-1]
        for job_id in acknowledged:
            job = store.job(job_id)
            assert (job.state, job.step) == (JobState.STARTING, 1)
            assert [event.to_state for event in store.events(job_id)] == ["queued", "starting"]
    store.migrate()
    assert {job.state for job in store.lists.jobs(limit=1000)} <= {JobState.QUEUED, JobState.STARTING}
