import subprocess
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event

from fakes.launching import fake_launchers
from job_examples import a_submission, an_experiment, cpu_machine, names_in, open_store
from rekindle.contract.files import read_json
from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import SnapshotPolicy, TargetKind
from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.experiments.experiment_submitter import submit_jobs
from rekindle_service.experiments.trials import Trial
from rekindle_service.jobs import submitter as submitter_module
from rekindle_service.jobs.submission_record import IdempotencyKey
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.launch.isolation.job_isolation import Isolation
from rekindle_service.launch.isolation.rights import SubmitRights
from rekindle_service.launch.isolation.sandbox import Sandbox
from rekindle_service.launch.local.interpreter import EditableModule
from rekindle_service.scheduler.recovery import recover_on_startup
from rekindle_service.store import StorageError, UnknownCommitError
from rekindle_service.submission import FieldError, SubmissionError

KEY = IdempotencyKey("key", "digest")


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


@pytest.fixture
def store(home):
    store = open_store(home.root)
    yield store
    store.close()


@pytest.fixture
def submitter(store, home):
    return Submitter(store, home, fake_launchers(store, home, cpu_machine(2)))


@pytest.fixture
def submission(tmp_path):
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("print(1)\n")
    return a_submission(code)


def test_a_submission_becomes_a_queued_job_with_its_own_copy_of_the_code(submitter, submission, home):
    policy = SnapshotPolicy(every_steps=5)
    asked = a_submission(submission.code, args=["--lr", "1"], env={"A": "b"}, max_ranks=2, snapshot=policy)
    job = submitter.submit(asked)
    run_dir = home.run_dir(job.id)
    assert submitter.store.job(job.id).state is JobState.QUEUED
    assert (run_dir.code / "train.py").read_text() == "print(1)\n"
    spec = JobSpec.from_json(read_json(run_dir.spec))
    assert (spec.target, spec.device, spec.min_ranks, spec.max_ranks) == ("train.py", "cpu", 1, 2)
    assert (spec.args, spec.env, spec.snapshot.every_steps) == (["--lr", "1"], {"A": "•••"}, 5)
    assert names_in(home.runs) == [job.id]


def test_a_script_is_named_relative_to_the_copy_by_whatever_path_it_was_given(submitter, submission):
    code = submission.code
    for target in (code / "train.py", f"{code}/../code/train.py", f"{code}/x/../train.py", "sub/../train.py"):
        assert submitter.submit(a_submission(code, target=str(target))).spec.target == "train.py"
    for target in (code / "train.py", f"{code}/x/../train.py"):
        assert submitter.submit(a_submission(target=str(target))).spec.target == "train.py"


def test_warnings_of_the_server_are_stored_with_the_job(submitter, submission, home):
    (submission.code / "train.py").write_text("import lib\n")
    submitter = replace(submitter, editable_modules=lambda _: [EditableModule("lib", Path("/me/lib"))])
    job = submitter.submit(submission)
    (warning,) = submitter.store.job(job.id).spec.warnings
    assert "lib is installed in editable mode, so the job imports it from /me/lib" in warning
    assert JobSpec.from_json(read_json(home.run_dir(job.id).spec)).warnings == [warning]


def test_a_module_without_code_gets_an_empty_directory(submitter, home):
    job = submitter.submit(a_submission(kind=TargetKind.MODULE, target="a.b"))
    assert list(home.run_dir(job.id).code.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "linked", "problems"),
    [
        ({"exclude": ["*.py"]}, False, [("script", "must not be excluded")]),
        ({"target": "nope.py", "max_ranks": 9}, False, ["script", "ranks"]),
        ({}, True, ["code.path"]),
        ({"python": "/usr/bin/false"}, False, [("python", "must have torch installed")]),
    ],
    ids=["an excluded script", "two problems at once", "a link out of the code", "an interpreter without torch"],
)
def test_a_refused_submission_names_its_problems_and_leaves_nothing_behind(
    submitter, submission, home, options, linked, problems
):
    def check_python(python):
        return FieldError("python", "must have torch installed", python) if python == "/usr/bin/false" else None

    if linked:
        (submission.code / "leak").symlink_to("/etc")
    with pytest.raises(SubmissionError) as caught:
        with_check(submitter, check_python).submit(a_submission(submission.code, **options))
    found = [(error.field, error.rule) for error in caught.value.errors]
    assert [each if each in problems else each[0] for each in found] == problems
    assert (names_in(home.runs), submitter.store.lists.jobs()) == ([], [])


def with_check(submitter, check_python):
    machine = cpu_machine(2)
    return replace(
        submitter, launchers=fake_launchers(submitter.store, submitter.home, machine, check_python=check_python)
    )


@pytest.mark.parametrize("script", ["secret.py", "guess.py", "../link/guess.py"])
def test_nothing_is_shown_of_the_files_of_another_persons_job(submitter, submission, home, tmp_path, script):
    code = home.run_dir(submitter.submit(submission).id).code
    (code / "secret.py").touch()
    (tmp_path / "link").symlink_to(code)
    for directory, named in ((code, script), (tmp_path / "link", script), (tmp_path, f"link/{script}")):
        spy = replace(a_submission(directory, target=named), owner="eve", readable_by="eve")
        with pytest.raises(SubmissionError) as caught:
            submitter.submit(spy)
        (error,) = caught.value.errors
        assert (error.rule, error.hint) == ("must not be in the server's home", "copy the code elsewhere")
        assert "train.py" not in str(caught.value)


def test_a_repeat_with_the_same_key_copies_nothing_and_gives_the_first_job(submitter, submission, home):
    first = submitter.submit(submission, KEY)
    assert submitter.submit(a_submission(submission.code, name="other"), KEY).id == first.id
    assert names_in(home.runs) == [first.id]


def test_of_many_concurrent_repeats_one_is_carried_out_and_the_others_wait_for_its_job(submitter, submission, home):
    jobs, checked = [], []
    submitter = with_check(submitter, checked.append)
    threads = [threading.Thread(target=lambda: jobs.append(submitter.submit(submission, KEY))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(jobs) == 8
    assert {job.id for job in jobs} == set(names_in(home.runs))
    assert len(submitter.store.lists.jobs()) == 1
    assert len(checked) == 1


def test_a_full_disk_is_reported_as_such_and_leaves_nothing_behind(submitter, submission, home, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(submitter_module, "copy_code", full)
    with pytest.raises(StorageError, match="free some space") as caught:
        submitter.submit(submission)
    assert caught.value.full
    assert names_in(home.runs) == []


def test_a_job_whose_row_cannot_be_written_leaves_no_directory(submitter, submission, home):
    submitter.store.close()
    home.database.unlink()
    home.database.mkdir()
    with pytest.raises(StorageError):
        submitter.submit(submission)
    assert names_in(home.runs) == []


@contextmanager
def replaced_during_a_commit(store, home):
    """Give the name of the database to another file while the next row of a job is committed, and back at the end."""
    away, inserts = home.root / "away.db", []

    def note(_connection, _cursor, statement, *_):
        inserts.extend([statement] if statement.startswith("INSERT INTO job ") else [])

    def replace_file(_connection):
        if inserts and not away.exists():
            home.database.rename(away)
            home.database.touch()

    listeners = {"before_cursor_execute": note, "commit": replace_file}
    for name, listener in listeners.items():
        event.listen(store._file.engine, name, listener)
    yield
    for name, listener in listeners.items():
        event.remove(store._file.engine, name, listener)
    away.rename(home.database)


def test_a_job_whose_commit_was_not_confirmed_keeps_its_directory(submitter, submission, home, store):
    with replaced_during_a_commit(store, home), pytest.raises(UnknownCommitError) as caught:
        submitter.submit(submission, KEY)
    assert caught.value.state == "replaced"
    repeated = submitter.submit(submission, KEY)
    assert repeated.number == 1
    experiment = an_experiment("exp0000001", definition={"sequential": False})
    with replaced_during_a_commit(store, home), pytest.raises(UnknownCommitError):
        submit_jobs(submitter, experiment, [(Trial({}, 0), submission)])
    recover_on_startup(home, store)
    ids = [job.id for job in store.lists.jobs()]
    assert sorted(ids) == names_in(home.runs)
    assert len(ids) == 2
    assert all(home.run_dir(job_id).spec.exists() for job_id in ids)


def test_isolated_jobs_are_copied_below_the_servers_own_mirror_alone(store, home, submission):
    launchers = fake_launchers(store, home, cpu_machine(2))
    launchers.rights = SubmitRights(Isolation(sandbox=Sandbox("bwrap", home)), home)

    def rules(setting: str | None, url: str) -> list[str]:
        asked = replace(submission, spec=replace(submission.spec, mirror=url))
        return [error.rule for error in Submitter(store, home, launchers, mirror=setting).validate(asked)]

    assert rules(None, "/backup/a") == ["needs the setting mirror"]
    for url in ("/backup", "/backup/", "/backup/of/ann"):
        assert rules("/backup", url) == []
    for url in ("/", "/backups", "/etc", "sftp://ann@host/backup"):
        rule = "must be below /backup (setting mirror), since jobs are isolated"
        assert [each for each in rules("/backup", url) if "extra" not in each] == [rule], url
    assert len(rules("/backup", "/backup/../etc")) == 1
    assert rules("/backup", "/backup/../etc")[0].startswith("must be s3://")


_SUBMIT = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from job_examples import a_submission, cpu_machine, open_store
from fakes.launching import fake_launchers
from rekindle_service.config.home import Home
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.scheduler.recovery import recover_on_startup

WATCHED = {"open", "os.mkdir", "os.rename", "shutil.rmtree", "os.symlink", "sqlite3.connect"}

def submit(deadly):
    calls = 0
    def audit(event, arguments):
        nonlocal calls
        if event in WATCHED:
            calls += 1
            if calls == deadly:
                os.kill(os.getpid(), signal.SIGKILL)

    home = Home(Path(sys.argv[1]))
    home.create()
    store = open_store(home.root)
    recover_on_startup(home, store)
    submitter = Submitter(store, home, fake_launchers(store, home, cpu_machine(2)))
    asked = a_submission(Path(sys.argv[2]), python="p")
    sys.addaudithook(audit)
    os.write(1, submitter.submit(asked).id.encode())

for line in sys.stdin:
    if (pid := os.fork()) == 0:
        submit(int(line))
        os._exit(0)
    os.waitpid(pid, 0)
    print(flush=True)
"""


def test_a_server_killed_at_any_point_of_a_submission_leaves_a_whole_job_or_none(home, store, submission):
    """The kill is at the n-th file operation, for every n until the submission gets through."""
    tests = str(Path(__file__).parent.parent)
    command = [sys.executable, "-c", _SUBMIT, str(home.root), str(submission.code), tests]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as servers:
        for deadly in range(1, 200):
            print(deadly, file=servers.stdin, flush=True)
            acknowledged = servers.stdout.readline().split()
            recover_on_startup(home, store)
            rows = {job.id for job in store.lists.jobs()}
            assert set(acknowledged) <= rows
            assert rows == {name for name in names_in(home.runs) if not name.startswith(".new-")}
            for job_id in rows:
                assert read_json(home.run_dir(job_id).spec)["job_id"] == job_id
                assert (home.run_dir(job_id).code / "train.py").exists()
            if acknowledged:
                assert deadly > 5
                return
    raise AssertionError("the submission never got through")
