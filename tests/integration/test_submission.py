import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from job_examples import a_submission, cpu_machine, names_in, open_store
from rekindle.contract.files import read_json
from rekindle.contract.job import JobSpec, SnapshotPolicy, TargetKind
from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.jobs import submitter as submitter_module
from rekindle_service.jobs.idempotency import IdempotencyKey
from rekindle_service.jobs.packaging.editable_installs import EditableModule
from rekindle_service.jobs.packaging.git_checkout import check_out
from rekindle_service.jobs.submission import FieldError, SubmissionError
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.scheduler.recovery import recover_on_startup
from rekindle_service.store import StorageError

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
    return Submitter(store, home, cpu_machine(2), check_python=lambda _: None, checkout=check_out)


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


def test_a_script_by_its_absolute_path_is_named_relative_to_the_copy(submitter, submission):
    job = submitter.submit(a_submission(target=str(submission.code / "train.py")))
    assert job.spec.target == "train.py"
    nested = a_submission(submission.code, target=str(submission.code / "train.py"))
    assert submitter.submit(nested).spec.target == "train.py"


def test_what_the_server_warns_of_stays_with_the_job(submitter, submission, home):
    (submission.code / "train.py").write_text("import lib\n")
    submitter = replace(submitter, editable_modules=lambda _: [EditableModule("lib", Path("/me/lib"))])
    job = submitter.submit(submission)
    (warning,) = submitter.store.job(job.id).spec.warnings
    assert "lib is installed in editable mode, so the job imports it from /me/lib" in warning
    assert JobSpec.from_json(read_json(home.run_dir(job.id).spec)).warnings == [warning]


def test_a_script_that_is_excluded_is_refused(submitter, submission, home):
    with pytest.raises(SubmissionError) as caught:
        submitter.submit(a_submission(submission.code, exclude=["*.py"]))
    assert [(error.field, error.rule) for error in caught.value.errors] == [("script", "must not be excluded")]
    assert names_in(home.runs) == []


def test_a_script_may_be_named_with_dots_in_its_path(submitter, submission):
    for target in ("sub/../train.py", f"{submission.code}/../code/train.py", f"{submission.code}/x/../train.py"):
        assert submitter.submit(a_submission(submission.code, target=target)).spec.target == "train.py"
    assert submitter.submit(a_submission(target=f"{submission.code}/x/../train.py")).spec.target == "train.py"


def test_a_module_without_code_gets_an_empty_folder(submitter, submission, home):
    job = submitter.submit(a_submission(kind=TargetKind.MODULE, target="a.b"))
    assert list(home.run_dir(job.id).code.iterdir()) == []


def test_a_refused_submission_leaves_nothing_behind(submitter, submission, home):
    with pytest.raises(SubmissionError) as caught:
        submitter.submit(a_submission(submission.code, target="nope.py", max_ranks=9))
    assert [error.field for error in caught.value.errors] == ["script", "ranks"]
    assert names_in(home.runs) == []
    assert submitter.store.lists.jobs() == []


def test_code_that_cannot_be_copied_is_refused_and_leaves_nothing_behind(submitter, submission, home):
    (submission.code / "leak").symlink_to("/etc")
    with pytest.raises(SubmissionError) as caught:
        submitter.submit(submission)
    assert [error.field for error in caught.value.errors] == ["code.path"]
    assert names_in(home.runs) == []


def test_an_interpreter_that_will_not_do_is_refused(submitter, submission):
    complaint = FieldError("python", "must have torch installed", "/usr/bin/python3")
    with pytest.raises(SubmissionError) as caught:
        replace(submitter, check_python=lambda _: complaint).submit(submission)
    assert caught.value.errors == [complaint]


def test_a_repeat_with_the_same_key_copies_nothing_and_gives_the_first_job(submitter, submission, home):
    first = submitter.submit(submission, KEY)
    assert submitter.submit(a_submission(submission.code, name="other"), KEY).id == first.id
    assert names_in(home.runs) == [first.id]


def test_of_many_concurrent_repeats_one_is_carried_out_and_the_others_wait_for_its_job(submitter, submission, home):
    jobs, checked = [], []
    submitter = replace(submitter, check_python=checked.append)
    threads = [threading.Thread(target=lambda: jobs.append(submitter.submit(submission, KEY))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(jobs) == 8
    assert {job.id for job in jobs} == set(names_in(home.runs))
    assert len(submitter.store.lists.jobs()) == 1
    assert len(checked) == 1


def test_a_full_disk_is_trouble_that_may_pass_and_leaves_nothing_behind(submitter, submission, home, monkeypatch):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(submitter_module, "copy_code", full)
    with pytest.raises(StorageError, match="free some space") as caught:
        submitter.submit(submission)
    assert caught.value.full
    assert names_in(home.runs) == []


def test_a_job_whose_row_cannot_be_written_leaves_no_folder(submitter, submission, home):
    submitter.store.close()
    home.database.unlink()
    home.database.mkdir()
    with pytest.raises(StorageError):
        submitter.submit(submission)
    assert names_in(home.runs) == []


_SUBMIT = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from job_examples import a_submission, cpu_machine, open_store
from rekindle_service.config.home import Home
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.scheduler.recovery import recover_on_startup
from rekindle_service.jobs.packaging.git_checkout import check_out

deadly = int(sys.argv[4])
calls = 0
WATCHED = {"open", "os.mkdir", "os.rename", "shutil.rmtree", "os.symlink", "sqlite3.connect"}
def audit(event, arguments):
    global calls
    if event in WATCHED:
        calls += 1
        if calls == deadly:
            os.kill(os.getpid(), signal.SIGKILL)

home = Home(Path(sys.argv[1]))
home.create()
store = open_store(home.root)
recover_on_startup(home, store)
submitter = Submitter(store, home, cpu_machine(2), check_python=lambda _: None, checkout=check_out)
asked = a_submission(Path(sys.argv[2]), python="p")
sys.addaudithook(audit)
print(submitter.submit(asked).id, flush=True)
"""


def test_a_server_killed_at_any_point_of_a_submission_leaves_a_whole_job_or_none(home, store, submission):
    """The kill is at the n-th file operation, for every n until the submission gets through."""
    tests = str(Path(__file__).parent.parent)
    for deadly in range(1, 200):
        done = subprocess.run(
            [sys.executable, "-c", _SUBMIT, str(home.root), str(submission.code), tests, str(deadly)],
            capture_output=True,
            text=True,
            check=False,
        )
        acknowledged = done.stdout.split()
        recover_on_startup(home, store)
        rows = {job.id for job in store.lists.jobs()}
        assert set(acknowledged) <= rows, done.stderr
        assert rows == {name for name in names_in(home.runs) if not name.startswith(".new-")}
        for job_id in rows:
            assert read_json(home.run_dir(job_id).spec)["job_id"] == job_id
            assert (home.run_dir(job_id).code / "train.py").exists()
        if acknowledged:
            assert deadly > 5
            return
    raise AssertionError("the submission never got through")
