"""A job that continues another: new code, the files that the old script wrote, and the old snapshots."""

import os
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace

import pytest

from fakes.launching import fake_launchers
from job_examples import a_submission, cpu_machine, names_in, open_store
from rekindle.contract.files import atomic_write
from rekindle.contract.run_dir.snapshot_dir import MANIFEST, Manifest, SnapshotDir, SnapshotFile
from rekindle.contract.states import JobIntent, JobState
from rekindle.keeper.attempt.attempt_processes import corrupt
from rekindle.training.snapshots.directory import verify
from rekindle_service.config.home import Home
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.store import StorageError
from rekindle_service.submission import SubmissionError
from swaps import swapping

OLD_CODE = {"train.py": "old", "config.yaml": "a", "edited.yaml": "a", "start.pt": "raw"}
NEW_CODE = {"train.py": "new", "config.yaml": "a", "edited.yaml": "b", "new.py": "new"}


def write(directory: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def a_snapshot(snapshots: Path, step: int, job_id: str) -> Path:
    directory = SnapshotDir(snapshots).path(step)
    contents = {"model.pt": "weights", "rank-0.pt": "state"}
    write(directory, contents)
    files = {name: SnapshotFile(len(text), sha256(text.encode()).hexdigest()) for name, text in contents.items()}
    manifest = Manifest(job_id, step, 1, 1, 5.0, "1-a", "2.15", files)
    atomic_write(directory / MANIFEST, manifest.encoded())
    return directory


@pytest.fixture
def submitter(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    store = open_store(home.root)
    yield Submitter(store, home, fake_launchers(store, home, cpu_machine(2)))
    store.close()


@pytest.fixture
def code(tmp_path):
    write(tmp_path / "new", NEW_CODE)
    write(tmp_path / "old", OLD_CODE)
    return tmp_path / "new"


@pytest.fixture
def old(submitter, code):
    """A job that has ended; its script wrote and changed files."""
    job = submitter.submit(a_submission(code.with_name("old")))
    run_dir = submitter.home.run_dir(job.id)
    write(run_dir.code, {"out/epoch-1.pt": "1", "config.yaml": "changed", "edited.yaml": "changed", "start.pt": "new"})
    write(run_dir.code, {"__pycache__/train.pyc": "x"})
    os.utime(run_dir.code / "out" / "epoch-1.pt", ns=(5, 5))
    (run_dir.code / "out" / "last.pt").symlink_to("epoch-1.pt")
    (run_dir.code / "out" / "absolute.pt").symlink_to(run_dir.code / "out" / "epoch-1.pt")
    write(run_dir.snapshots, {"own/model.ckpt": "own", ".tmp-1-a-000000000004/model.pt": "half"})
    a_snapshot(run_dir.snapshots, 3, job.id)
    end(submitter, job)
    return submitter.store.job(job.id)


def end(submitter, job):
    submitter.store.transition(job.id, JobState.CANCELLED, expected={JobState.QUEUED}, reason="for a test")


def problem(submitter, code, job_id, **options):
    with pytest.raises(SubmissionError) as caught:
        submitter.submit(a_submission(code, continue_from=job_id, **options))
    assert {each.field for each in caught.value.errors} == {"continue_from"}
    return " ".join(f"{each.rule}; {each.hint}" for each in caught.value.errors)


def test_new_code_finds_what_the_old_script_wrote_and_its_snapshots(submitter, old, code):
    job = submitter.submit(a_submission(code, continue_from=old.id))
    before, after = submitter.home.run_dir(old.id), submitter.home.run_dir(job.id)
    texts = {str(path.relative_to(after.code)): path.read_text() for path in after.code.rglob("*") if path.is_file()}
    written = {
        "out/epoch-1.pt": "1",
        "out/last.pt": "1",
        "out/absolute.pt": "1",
        "start.pt": "new",
        "config.yaml": "changed",
    }
    assert texts == {**NEW_CODE, **written}, "an edit of a person goes before one of the script"
    assert (after.code / "out" / "epoch-1.pt").stat().st_mtime_ns == 5
    assert (after.code / "out" / "absolute.pt").resolve() == after.code / "out" / "epoch-1.pt"
    assert names_in(after.snapshots) == ["000000000003", "own"]
    manifest = verify(SnapshotDir(after.snapshots).path(3), step=3, job_id=job.id)
    assert manifest == replace(SnapshotDir(before.snapshots).manifest(3), job_id=job.id)
    assert job.spec.continue_from == old.id

    corrupt(SnapshotDir(after.snapshots).path(3))
    (after.code / "out" / "epoch-1.pt").write_text("2")
    assert (SnapshotDir(before.snapshots).path(3) / "model.pt").read_text() == "weights", "the old job keeps its own"
    assert (before.code / "out" / "epoch-1.pt").read_text() == "1"


def test_a_third_job_gets_what_the_first_one_wrote(submitter, old, code):
    second = submitter.submit(a_submission(code, continue_from=old.id))
    end(submitter, second)
    third = submitter.submit(a_submission(code, continue_from=second.id))
    after = submitter.home.run_dir(third.id)
    assert (after.code / "out" / "epoch-1.pt").read_text() == "1"
    assert SnapshotDir(after.snapshots).manifest(3).job_id == third.id


def test_a_job_continues_from_the_snapshot_of_a_chosen_step(submitter, old, code):
    a_snapshot(submitter.home.run_dir(old.id).snapshots, 5, old.id)
    job = submitter.submit(a_submission(code, continue_from=old.id, continue_step=3))
    assert SnapshotDir(submitter.home.run_dir(job.id).snapshots).steps() == [3]
    unknown = a_submission(code, continue_from=old.id, continue_step=4)
    of_no_job = a_submission(code, continue_step=3)
    for submission, rule in ((unknown, "it has those of the steps 3, 5"), (of_no_job, "needs continue_from")):
        with pytest.raises(SubmissionError, match="continue_step") as caught:
            submitter.submit(submission)
        (error,) = caught.value.errors
        assert (error.field, rule in error.rule) == ("continue_step", True)


def test_a_job_without_code_is_continued_too(submitter, old, code):
    job = submitter.submit(a_submission(kind="recipe", target="ddp", continue_from=old.id))
    after = submitter.home.run_dir(job.id)
    assert SnapshotDir(after.snapshots).steps() == [3]
    assert (after.code / "out" / "epoch-1.pt").exists()


def test_a_job_that_may_still_write_is_refused_with_what_to_do(submitter, old, code):
    assert "must name a job that exists" in problem(submitter, code, "nojob00000")
    running = submitter.submit(a_submission(code))
    assert f"job {running.number} is queued; rekindle drain {running.number}" in problem(submitter, code, running.id)
    submitter.store.set_intent(running.id, JobIntent.HOLD)
    assert submitter.submit(a_submission(code, continue_from=running.id)).spec.continue_from == running.id


def test_a_file_that_both_have_made_is_refused_and_nothing_is_left(submitter, old, code):
    write(code, {"out/epoch-1.pt": "another"})
    before = names_in(submitter.home.runs)
    assert "out/epoch-1.pt; exclude it from the code" in problem(submitter, code, old.id)
    assert names_in(submitter.home.runs) == before
    job = submitter.submit(a_submission(code, continue_from=old.id, exclude=["/out"]))
    assert (submitter.home.run_dir(job.id).code / "out" / "epoch-1.pt").read_text() == "1"


def test_a_disk_without_room_is_refused_with_numbers(submitter, old, code, monkeypatch):
    def usage(path):
        return SimpleNamespace(free=1 if path.parent.name == "runs" else 10**12)  # full once the run directory exists

    monkeypatch.setattr("shutil.disk_usage", usage)
    assert "MB are free on the disk" in problem(submitter, code, old.id)


def test_nothing_that_a_link_leads_to_outside_is_taken_over(submitter, old, code, tmp_path):
    secret = tmp_path / "secrets" / "token"
    write(secret.parent, {"token": "secret"})
    run_dir = submitter.home.run_dir(old.id)
    weights = a_snapshot(run_dir.snapshots, 7, old.id) / "model.pt"
    weights.unlink()
    weights.symlink_to(secret)
    run_dir.code.rename(run_dir.root / "code before")
    run_dir.code.symlink_to(secret.parent)
    after = submitter.home.run_dir(submitter.submit(a_submission(code, continue_from=old.id)).id)
    assert names_in(after.snapshots) == ["000000000003", "own"]
    assert {str(path.relative_to(after.code)) for path in after.code.rglob("*") if path.is_file()} == set(NEW_CODE)
    assert secret.stat().st_nlink == 1


def test_nothing_is_written_where_a_link_in_the_new_code_leads(submitter, old, code, tmp_path):
    """Such a link may be kept on request, and the old job has chosen names and contents."""
    before = tmp_path / "of the server"
    write(before, {"token": "secret"})
    (code / "out").symlink_to(before)
    run_dir = submitter.home.run_dir(old.id)
    write(run_dir.code, {"out/token": "forged", "out/rekindle.toml": "forged"})
    run_dir.code_manifest.unlink()
    assert "out/token" in problem(submitter, code, old.id, keep_links=True)
    assert {path.name: path.read_text() for path in before.iterdir()} == {"token": "secret"}


@pytest.mark.long
def test_a_job_that_has_not_ended_after_all_gains_nothing_by_swapping_its_files_for_links(
    submitter, old, code, tmp_path
):
    """Its end is what it has reported; under a sandbox the server may read more than the job."""
    secrets, run_dir = tmp_path / "of the server", submitter.home.run_dir(old.id)
    write(secrets, {"epoch-1.pt": "secret", "model.pt": "secret", "000000000003/model.pt": "secret"})
    write(secrets, {"out/epoch-1.pt": "secret", "own/model.ckpt": "secret", "000000000003/rank-0.pt": "secret"})
    (secrets / "000000000003" / MANIFEST).write_bytes((run_dir.snapshots / "000000000003" / MANIFEST).read_bytes())
    goals = {
        run_dir.code / "out" / "epoch-1.pt": secrets / "epoch-1.pt",
        run_dir.code / "out": secrets / "out",
        run_dir.code: secrets,
        run_dir.snapshots / "000000000003" / "model.pt": secrets / "model.pt",
        run_dir.snapshots / "000000000003": secrets / "000000000003",
        run_dir.snapshots: secrets,
    }
    continued = 0
    with swapping(goals) as swaps:
        while continued < 100 or swaps.count < 10_000:
            with suppress(SubmissionError, StorageError):
                job = submitter.submit(a_submission(code, continue_from=old.id))
                found = submitter.home.run_dir(job.id)
                files = [path for path in found.root.rglob("*") if path.is_file() and not path.is_symlink()]
                assert [path for path in files if b"secret" in path.read_bytes()] == []
                end(submitter, job)
                continued += 1
    assert {path.stat().st_nlink for path in secrets.rglob("*") if path.is_file()} == {1}
