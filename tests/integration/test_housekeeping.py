import signal
import subprocess
import sys

import pytest

from job_examples import a_job, names_in, open_store, queued_job
from rekindle.contract.files import write_json
from rekindle.contract.job import RunIntent
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.states import HOLDING_SLOTS, JobIntent, JobState
from rekindle_service.config.home import Home
from rekindle_service.retention.deletions import Deletions
from rekindle_service.scheduler.recovery import recover_on_startup
from rekindle_service.scheduler.run_sync import RunSync


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def store(home):
    store = open_store(home.root)
    recover_on_startup(home, store)
    yield store
    store.close()


def sent_off(home, job, run=1, want=JobIntent.RUN):
    write_json(home.run_dir(job.id).intent, RunIntent(want, run, ["cpu:0"], max_failures=7).to_json())


def lose_database(home, store):
    store.close()
    for file in home.root.glob("rekindle.db*"):
        file.unlink()
    return open_store(home.root)


def test_what_was_left_half_submitted_or_half_deleted_is_swept(home, store):
    for name in (".new-abcdefghij", ".deleted-abcdefghij"):
        (home.runs / name / "code").mkdir(parents=True)
    job = queued_job(store, home)
    deletions = Deletions(home)
    deletions.adopt()
    recover_on_startup(home, store)
    assert deletions.run_due() is None
    assert names_in(home.runs) == [job.id]


def test_a_folder_whose_submission_was_never_confirmed_is_swept(home, store):
    lost = queued_job(store, home)
    with store.writing() as session:
        session.delete(session.get(type(lost), lost.id))
    recover_on_startup(home, store)
    assert names_in(home.runs) == []


def test_what_is_no_run_directory_is_left_alone(home, store):
    (home.runs / "notes.txt").write_text("mine")
    (home.runs / "lost+found").mkdir()
    recover_on_startup(home, store)
    assert names_in(home.runs) == ["lost+found", "notes.txt"]


def test_a_lost_database_is_rebuilt_from_the_run_directories(home, store):
    ended, running, _ = (queued_job(store, home, name=name) for name in ("ended", "running", "never"))
    for job in (ended, running):
        sent_off(home, job)
    Journal(home.run_dir(ended.id).journal).write(
        RecordType.JOB_ENDED, run=1, state="failed", reason="because", outcome={"class": "oom", "message": "m"}
    )
    store = lose_database(home, store)
    recover_on_startup(home, store)
    monitor = RunSync(store, home)
    for job in store.jobs_in(HOLDING_SLOTS):
        monitor.read_journal(job)
    rows = {job.name: job for job in store.jobs()}
    assert (rows["ended"].state, rows["ended"].outcome["class"]) == (JobState.FAILED, "oom")
    assert (rows["running"].state, rows["running"].devices) == (JobState.STARTING, ["cpu:0"])
    assert (rows["running"].run, rows["running"].max_failures) == (1, 7)
    assert (rows["never"].state, rows["never"].intent) == (JobState.QUEUED, JobIntent.HOLD)
    assert rows["never"].spec.target == "train.py"
    store.close()


def test_a_run_that_was_sent_off_is_never_removed_for_want_of_a_row(home, store):
    queued_job(store, home)
    orphan = queued_job(store, home)
    sent_off(home, orphan, want=JobIntent.CANCEL)
    with store.writing() as session:
        session.delete(session.get(type(orphan), orphan.id))
    recover_on_startup(home, store)
    assert store.job(orphan.id).intent is JobIntent.CANCEL


@pytest.mark.parametrize("spec", [b"", b"[]", b"{}", b'{"job_id": 1}', b"\xff", None])
def test_a_folder_that_tells_no_job_is_left_as_it_is(home, store, spec):
    store = lose_database(home, store)
    run_dir = home.run_dir("abcdefghij")
    run_dir.root.mkdir()
    if spec is not None:
        run_dir.spec.write_bytes(spec)
    recover_on_startup(home, store)
    assert store.jobs() == []
    assert run_dir.root.exists()
    store.close()


def test_the_folder_of_a_job_under_another_id_makes_no_job(home, store):
    job = queued_job(store, home)
    store = lose_database(home, store)
    home.run_dir(job.id).root.rename(home.runs / "abcdefghij")
    recover_on_startup(home, store)
    assert store.jobs() == []
    store.close()


def test_the_folder_and_the_shared_memory_of_a_deleted_job_stay_while_its_keeper_lives(home):
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
