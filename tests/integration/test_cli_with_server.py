"""The command line against a real server; keeper and ranks are played by the test, so that it decides what happens."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli_process import environment, rekindle, state_of
from e2e.played_job import PlayedJob, played_jobs
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import JobState

_RAISED = Outcome(OutcomeClass.USER_ERROR, "ValueError: boom", rank=0, file="train.py", line=42, retryable=False)

Play = Callable[..., PlayedJob]


@pytest.fixture
def play(served_home: Path) -> Iterator[Play]:
    with played_jobs(served_home) as make:
        yield make


def test_a_script_is_submitted_from_its_directory_and_controlled_by_name(served_home: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import time\ntime.sleep(600)\n")
    words = ["--device", "cpu", "train.py", "--", "--lr", "0.1", "--ranks", "9"]
    first = rekindle(served_home, "submit", "--name", "long", "-o", "id", *words, cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    job_id = first.stdout.strip()
    shown = json.loads(rekindle(served_home, "show", "long", "-o", "json").stdout)
    assert (shown["id"], shown["target"]["value"]) == (job_id, "train.py")
    assert shown["args"] == ["--lr", "0.1", "--ranks", "9"]
    assert Path(shown["directory"], "train.py").is_file()
    second = rekindle(served_home, "submit", "--after", "long", "--priority", "3", "-o", "id", *words, cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    listed = json.loads(rekindle(served_home, "ps", "-o", "json").stdout)
    assert (listed[0]["after"], listed[0]["priority"], listed[0]["state"]) == ([job_id], 3, "queued")
    for each in (second.stdout.strip(), job_id):
        assert rekindle(served_home, "cancel", each).returncode == 0
    assert rekindle(served_home, "wait", job_id).returncode == 3


def test_code_comes_from_a_repository_and_limits_are_sent(served_home: Path, tmp_path: Path) -> None:
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "train.py").write_text("print('trained')\n")
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    for words in (["init", "--quiet"], ["add", "train.py"], [*who, "commit", "--quiet", "--message", "First"]):
        subprocess.run(["git", *words], cwd=repository, check=True)
    limits = ["--time-limit", "600", "--hang-timeout", "45.5"]
    done = rekindle(
        served_home,
        "submit",
        "--git",
        repository.as_uri(),
        "--device",
        "cpu",
        *limits,
        "--follow",
        "-o",
        "json",
        "train.py",
    )
    assert done.returncode == 0, done.stderr
    job = json.loads(rekindle(served_home, "show", "train", "-o", "json").stdout)
    assert (job["time_limit"], job["hang_timeout"]) == (600, 45.5)
    assert job["code"]["git"] == repository.as_uri()
    assert "trained" in rekindle(served_home, "logs", "train").stdout


def test_submit_follow_shows_the_output_between_the_states(served_home: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('\\033[31mtrained')\nraise SystemExit('no data')\n")
    words = ["submit", "--device", "cpu", "--max-failures", "1", "--follow", "train.py"]
    done = rekindle(served_home, *words, cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert done.returncode == 1, done.stderr
    assert "[rank 0] trained" in lines
    assert "[rank 0] no data" in lines
    assert lines.index("[rank 0] trained") < len(lines) - 1
    assert lines[-1].startswith("train failed")


def test_a_rejected_job_is_reported_field_by_field(served_home: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    before = rekindle(served_home, "ps", "-o", "id").stdout
    done = rekindle(served_home, "submit", "--ranks", "4000", "--device", "cpu", "train.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "ranks: " in done.stderr
    assert "4000" in done.stderr
    assert rekindle(served_home, "ps", "-o", "id").stdout == before


def test_a_dry_run_shows_what_would_be_submitted_or_why_not_and_submits_nothing(
    served_home: Path, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('trained')\n")
    before = rekindle(served_home, "ps", "--all", "-o", "id").stdout

    def dry(*words: str) -> subprocess.CompletedProcess[str]:
        return rekindle(served_home, "submit", "--dry-run", "--device", "cpu", *words, cwd=tmp_path)

    shown = dry("train.py", "--lr", "0.1", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines()[0] == "train  would be accepted"
    assert "train.py --lr 0.1 --dry-run\n" in shown.stdout, "what follows the script is the script's"
    assert f"1 file, 17 B, of {tmp_path}\n" in shown.stdout
    assert shown.stdout.splitlines()[-1] == "Nothing was submitted."
    held = json.loads(dry("--hold", "-o", "json", "train.py").stdout)
    assert (held["starts_in"], held["reason"], held["jobs"]) == (None, "on hold", 1)
    array = json.loads(dry("--array", "3-9:2%2", "-o", "json", "train.py", "{index}").stdout)
    assert (array["jobs"], array["name"], array["args"]) == (4, "train[3]", ["3"])
    for words, problem in (
        (["--ranks", "99999", "train.py"], "ranks: "),
        (["--exclude", "*.py", "train.py"], "script: must not be excluded"),
        (["--array", "9-0", "train.py"], "--array"),
        (["--follow", "train.py"], "--dry-run starts nothing"),
    ):
        refused = dry(*words)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert problem in refused.stderr
    same = rekindle(served_home, "submit", "--device", "cpu", "--ranks", "99999", "train.py", cwd=tmp_path)
    assert (same.returncode, same.stderr) == (2, dry("--ranks", "99999", "train.py").stderr)
    assert rekindle(served_home, "ps", "--all", "-o", "id").stdout == before


def declined(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of a terminal whose question is answered with no; its output goes elsewhere."""
    ours, theirs = pty.openpty()
    try:
        os.write(ours, b"n\n")
        command = [sys.executable, "-m", "rekindle_service", *words]
        return subprocess.run(
            command, env=environment(home), stdin=theirs, capture_output=True, text=True, timeout=60, check=False
        )
    finally:
        os.close(ours)
        os.close(theirs)


def test_finished_jobs_are_deleted_after_a_confirmation(served_home: Path, play: Play) -> None:
    over, running = play("over"), play("running")
    for job in (over, running):
        job.begin_attempt()
    over.end(JobState.FAILED, _RAISED)
    until(lambda: state_of(served_home, over.id) == "failed", "the job is over")
    assert "stdin is not a terminal; pass --yes" in rekindle(served_home, "delete", "over").stderr
    asked = declined(served_home, "prune", "--jobs", "0", "-o", "json")
    assert (asked.stdout.strip(), "would be removed" in asked.stderr) == ("", True)
    assert "No job is called 'letters'" in rekindle(served_home, "delete", "--yes", "over", "letters").stderr
    assert state_of(served_home, over.id) == "failed"
    done = rekindle(served_home, "delete", "--yes", "over", over.id, "running")
    assert done.returncode == 2
    assert re.fullmatch(r"Deleted over \(#\d+\)\n", done.stdout)
    assert "only a finished job can be deleted: cancel it first" in done.stderr
    left = rekindle(served_home, "ps", "-o", "id").stdout.split()
    assert (running.id in left, over.id in left) == (True, False)


def test_jobs_of_a_filter_are_changed_together_after_a_confirmation(home: Path) -> None:
    with ServeProcess(home), played_jobs(home) as play:
        over, other, running = play("sweep-1"), play("sweep-2"), play("sweep-3")
        for job in (over, other, running):
            job.begin_attempt()
        for job in (over, other):
            job.end(JobState.FAILED, _RAISED)
        until(lambda: {state_of(home, job.id) for job in (over, other)} == {"failed"}, "two jobs are over")
        overview = rekindle(home).stdout
        assert "Needs you (2)" in overview
        assert "Running (1)" in overview
        shown = rekindle(home, "show", "sweep-1").stdout.splitlines()
        assert shown[:3] == ["sweep-1  failed", "Failed in rank 0", "  ValueError: boom"]
        assert "pass --yes" in rekindle(home, "cancel", "--filter", "sweep").stderr
        for words in (["sweep-1", "--filter", "sweep", "--yes"], []):
            assert "name jobs, or select them with --filter" in rekindle(home, "delete", *words).stderr
        assert "request rejected" in rekindle(home, "delete", "--filter", "state:faild", "--yes").stderr
        done = rekindle(home, "delete", "--filter", "SWEEP", "--yes")
        assert (done.returncode, done.stdout) == (0, "Deleted sweep-2 (#2)\nDeleted sweep-1 (#1)\n")
        none = rekindle(home, "delete", "--filter", "state:failed", "--yes", "-o", "json")
        assert (none.stdout, "No job to change matches" in none.stderr) == ("[]\n", True)
        cancelled = rekindle(home, "cancel", "--filter", "state:running sweep-3", "--yes", "-o", "json")
        assert [job["intent"] for job in json.loads(cancelled.stdout)] == ["cancel"]


def test_a_filter_resumes_jobs_that_failed_and_none_that_succeeded(served_home: Path, play: Play) -> None:
    done, failed = play("again-1"), play("again-2")
    for job in (done, failed):
        job.begin_attempt()
    done.end(JobState.SUCCEEDED, Outcome(OutcomeClass.SUCCESS, ""))
    failed.end(JobState.FAILED, _RAISED)
    until(lambda: [state_of(served_home, job.id) for job in (done, failed)] == ["succeeded", "failed"], "both ended")
    resumed = rekindle(served_home, "resume", "--filter", "again", "--yes", "-o", "id")
    assert resumed.stdout.split() == [failed.id], resumed.stderr
    assert state_of(served_home, done.id) == "succeeded"
    assert rekindle(served_home, "resume", done.id, "-o", "id").stdout.split() == [done.id]
