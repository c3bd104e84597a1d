import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace

import pytest

from fakes.launching import fake_launchers
from job_examples import a_job, a_submission, an_experiment, cpu_machine, names_in, open_store, queued_job
from rekindle.contract.files import write_json
from rekindle.contract.job import RunIntent
from rekindle.contract.job_options import TargetKind
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.config.home import Home
from rekindle_service.experiments.experiment_submitter import submit_jobs
from rekindle_service.experiments.trials import Trial
from rekindle_service.jobs import submission_record
from rekindle_service.jobs.submission_record import IdempotencyKey
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.retention.deletions import Deletions
from rekindle_service.scheduler.reconciler import Reconciler
from rekindle_service.scheduler.recovery import recover_on_startup
from rekindle_service.scheduler.run_sync import RunSync
from rekindle_service.store import StorageError

KEY = IdempotencyKey("key", "digest")


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def stores(home):
    """Every store that the test has opened, the one in use last."""
    opened = [open_store(home.root)]
    yield opened
    opened[-1].close()


@pytest.fixture
def store(home, stores):
    recover_on_startup(home, stores[0])
    return stores[0]


@pytest.fixture
def submitter(home, store):
    return Submitter(store, home, fake_launchers(store, home, cpu_machine(2)))


@pytest.fixture
def recover_with(home, stores):
    """Exchanges the database for an older copy of it, or for an empty one; a server starts with that."""

    def start(older=None):
        stores[-1].close()
        for file in home.root.glob("rekindle.db*"):
            file.unlink()
        if older is not None:
            older.rename(home.database)
        stores.append(open_store(home.root))
        return stores[-1], recover_on_startup(home, stores[-1])

    return start


def write_intent(home, job, want=JobIntent.RUN):
    """A keeper has been launched for the job."""
    write_json(home.run_dir(job.id).intent, RunIntent(want, 1, ["cpu:0"], max_failures=7).to_json())


def end_in_journal(home, job):
    Journal(home.run_dir(job.id).journal).write(
        RecordType.JOB_ENDED, run=1, state="failed", reason="r", outcome={"class": "oom", "message": "m"}
    )


def read_journals(home, store):
    for job in store.holding():
        RunSync(store, home).read_journal(job)


def asked():
    return a_submission(kind=TargetKind.MODULE, target="train")


def copy_of_database(home):
    """A copy of the database as it is now."""
    copy = home.root.parent / "older.db"
    with closing(sqlite3.connect(home.database)) as now, closing(sqlite3.connect(copy)) as older:
        now.backup(older)
    return copy


def test_what_was_left_half_submitted_or_half_deleted_is_swept(home, store):
    for name in (".new-abcdefghij", ".deleted-abcdefghij"):
        (home.runs / name / "code").mkdir(parents=True)
    job = queued_job(store, home)
    deletions = Deletions(home)
    deletions.adopt()
    recover_on_startup(home, store)
    assert deletions.run_due() is None
    assert names_in(home.runs) == [job.id]


def test_a_submission_without_a_row_is_removed_and_one_with_a_row_is_completed(home, store, submitter):
    refused, committed = submitter.prepare(asked()), submitter.prepare(asked())
    store.add_job(committed, numbered=True)
    assert names_in(home.runs) == sorted(f".new-{job.id}" for job in (refused, committed))
    recovered = recover_on_startup(home, store)
    deletions = Deletions(home)
    deletions.adopt()
    deletions.run_due()
    assert names_in(home.runs) == [committed.id]
    assert (store.job(committed.id).intent, recovered.held) == (JobIntent.RUN, [])


def test_a_job_is_not_started_before_its_submission_is_confirmed(home, store, submitter):
    job = store.add_job(submitter.prepare(asked()), numbered=True)
    engine = Reconciler(store, home, cpu_machine(2), fake_launchers(store, home, cpu_machine(2)))
    engine.reconcile()
    assert store.job(job.id).state is JobState.QUEUED
    submitter.confirm([job])
    engine.reconcile()
    assert store.job(job.id).state is JobState.STARTING
    engine.close()


def test_a_directory_that_cannot_get_its_name_takes_its_row_with_it(home, store, submitter, monkeypatch):
    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(submission_record, "fsync_directory", fail)
    with pytest.raises(StorageError, match="Input/output error"):
        submitter.submit(asked())
    assert (store.lists.jobs(), names_in(home.runs)) == ([], [])


def test_an_older_database_loses_no_job_that_was_submitted_since(home, store, submitter, recover_with):
    """The jobs keep their number, owner and key; one that had never started is held."""
    before = submitter.submit(asked())
    older = copy_of_database(home)
    gone = submitter.submit(asked())
    store.transition(gone.id, JobState.CANCELLED, expected={JobState.QUEUED}, reason="test")
    store.delete_job(gone.id)
    shutil.rmtree(home.run_dir(gone.id).root)
    waiting = submitter.submit(asked(), KEY)
    started = submitter.submit(asked())
    write_intent(home, started)
    store, recovered = recover_with(older)
    rows = {job.id: job for job in store.lists.jobs()}
    assert list(rows) == [started.id, waiting.id, before.id]
    assert [rows[job.id].number for job in (before, waiting, started)] == [1, 3, 4]
    assert (rows[waiting.id].intent, rows[before.id].intent) == (JobIntent.HOLD, JobIntent.RUN)
    assert "was made again from its run directory. It has never started and is held" in rows[waiting.id].notice
    assert rows[started.id].state is JobState.STARTING
    assert rows[waiting.id].request_digest == "digest"
    assert (recovered.held, recovered.started) == ([waiting.id], [started.id])
    submitter = replace(submitter, store=store)
    assert submitter.submit(asked(), KEY).id == waiting.id
    assert submitter.submit(asked()).number == 5


def test_a_row_that_is_older_than_its_run_directory_does_not_run_the_job_again(home, store, recover_with):
    """In the older database it waits in the queue; it has run and failed since."""
    job = queued_job(store, home)
    removed = queued_job(store, home)
    older = copy_of_database(home)
    write_intent(home, job)
    end_in_journal(home, job)
    shutil.rmtree(home.run_dir(removed.id).root)
    store, recovered = recover_with(older)
    read_journals(home, store)
    row, without = store.job(job.id), store.job(removed.id)
    assert (row.state, row.run, row.outcome["class"], row.devices) == (JobState.FAILED, 1, "oom", [])
    assert (without.state, without.intent) == (JobState.QUEUED, JobIntent.HOLD)
    assert "run directory is missing" in without.notice
    assert (recovered.older, recovered.gone) == ([job.id], [removed.id])


def test_experiments_are_rebuilt_with_their_trials_in_order(store, submitter, recover_with):
    definition = {"sequential": True, "measure": []}
    made = an_experiment("exp0000001", definition=definition, owner="ada", notes=["none"])
    trials = [(Trial({"--lr": rate}, 0), asked()) for rate in (0.1, 0.01)]
    submit_jobs(submitter, made, trials, KEY)
    first = {job.id: (job.number, job.trial, job.parallel) for job in store.experiments.jobs(made.id)}
    store, recovered = recover_with()
    assert {job.id: (job.number, job.trial, job.parallel) for job in store.experiments.jobs(made.id)} == first
    assert recovered.experiments == [made.id]
    assert store.experiments.get(made.id) == made
    assert store.experiments.by_key("key").owner == "ada"


@pytest.mark.parametrize(
    "record",
    [None, [], {}, {"number": 10**30, "created_at": 1}, {"number": 1, "created_at": float("inf")},
     {"number": 1, "created_at": 1, "owner": {}}, {"number": -1, "created_at": 1},
     {"number": 1, "created_at": 1, "experiment_id": "exp0000001", "trial": {"parameters": 7}},
     {"number": 1, "created_at": 1, "experiment_id": "../../etc", "trial": {"parameters": {}, "repeat": 0}}],
)  # fmt: skip
def test_a_forged_submission_makes_no_other_job_than_its_own(home, store, recover_with, record):
    other, forger = queued_job(store, home), queued_job(store, home)
    stored = {**forger.spec.to_json(), "job_id": forger.id, "submission": record}
    home.run_dir(forger.id).spec.write_text(json.dumps(stored))
    store, _ = recover_with()
    assert {job.id for job in store.lists.jobs()} == {other.id, forger.id}
    assert {job.number for job in store.lists.jobs()} == {1, 2}
    assert store.job(forger.id).trial == {}


def test_what_is_no_run_directory_is_left_alone(home, store):
    (home.runs / "notes.txt").write_text("mine")
    (home.runs / "lost+found").mkdir()
    recover_on_startup(home, store)
    assert names_in(home.runs) == ["lost+found", "notes.txt"]


def test_a_lost_database_is_rebuilt_from_the_run_directories(home, store, recover_with):
    ended, running, _ = (queued_job(store, home, name=name) for name in ("ended", "running", "never"))
    for job in (ended, running):
        write_intent(home, job)
    end_in_journal(home, ended)
    store, _ = recover_with()
    read_journals(home, store)
    rows = {job.name: job for job in store.lists.jobs()}
    assert (rows["ended"].state, rows["ended"].outcome["class"]) == (JobState.FAILED, "oom")
    assert (rows["running"].state, rows["running"].devices) == (JobState.STARTING, ["cpu:0"])
    assert (rows["running"].run, rows["running"].max_failures) == (1, 7)
    assert (rows["never"].state, rows["never"].intent) == (JobState.QUEUED, JobIntent.HOLD)
    assert rows["never"].spec.target == "train.py"


def test_a_run_whose_keeper_was_launched_is_not_removed_when_its_row_is_missing(home, store):
    queued_job(store, home)
    orphan = queued_job(store, home)
    write_intent(home, orphan, want=JobIntent.CANCEL)
    with store.writing() as session:
        session.delete(session.get(type(orphan), orphan.id))
    recover_on_startup(home, store)
    assert store.job(orphan.id).intent is JobIntent.CANCEL


@pytest.mark.parametrize("spec", [b"", b"[]", b"{}", b'{"job_id": 1}', b"\xff", None])
def test_a_directory_without_the_spec_of_its_own_job_makes_no_job_and_is_left_as_it_is(home, recover_with, spec):
    run_dir = home.run_dir("abcdefghij")
    run_dir.root.mkdir()
    if spec is not None:
        run_dir.spec.write_bytes(spec)
    store, _ = recover_with()
    assert store.lists.jobs() == []
    assert run_dir.root.exists()


def test_the_directory_of_a_job_under_another_id_makes_no_job(home, store, recover_with):
    job = queued_job(store, home)
    home.run_dir(job.id).root.rename(home.runs / "abcdefghij")
    store, _ = recover_with()
    assert store.lists.jobs() == []


def test_the_directory_and_the_shared_memory_of_a_deleted_job_stay_while_its_keeper_lives(home):
    job = a_job()
    run_dir = home.run_dir(job.id)
    run_dir.root.mkdir()
    run_dir.memory.joinpath("7").mkdir(parents=True)
    hold = "import sys; from pathlib import Path; from rekindle.contract.locks import ExclusiveLock\n"
    hold += "lock = ExclusiveLock(Path(sys.argv[1])); print('held', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", hold, str(run_dir.keeper_lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as keeper:
        assert keeper.stdout.readline() == b"held\n"
        deletions = Deletions(home)
        deletions.remove_run(job.id)
        assert deletions.run_due() is not None
        assert run_dir.root.exists()
        assert run_dir.memory.exists()
        assert deletions.stuck() == []
        keeper.send_signal(signal.SIGKILL)
    deletions.retry()
    assert deletions.run_due() is None
    assert names_in(home.runs) == []
    assert not run_dir.memory.exists()
