"""Commands about one job, played by the test, against one real server for all tests of this file."""

import json
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from cli_process import rekindle, start
from cli_terminal import terminal
from e2e.played_job import PlayedJob, played_jobs
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from rekindle import Snapshots
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import JobState

_KILLED = Outcome(OutcomeClass.SIGNAL, "rank 1 was killed by SIGKILL", rank=1, signal="SIGKILL")
_DONE = Outcome(OutcomeClass.SUCCESS, "every rank was done")
_RAISED = Outcome(OutcomeClass.USER_ERROR, "ValueError: boom", rank=0, file="train.py", line=42, retryable=False)
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")

Play = Callable[..., PlayedJob]


@pytest.fixture
def home(served_home: Path) -> Path:
    return served_home


@pytest.fixture
def play(home: Path) -> Iterator[Play]:
    with played_jobs(home) as make:
        yield make


def test_a_hostile_reference_finds_nothing_and_nothing_else_happens(home: Path, play: Play) -> None:
    play("digits")
    for reference in ("..", "a/b", "%2e%2e", "a?b", "x" * 300, "é", ""):
        done = rekindle(home, "cancel", "--", reference)
        assert done.returncode == 2, reference
        assert "No job is called" in done.stderr, reference
        assert "digits" in done.stderr, "the latest jobs are named"


def test_the_exit_code_of_wait_reflects_the_outcome(home: Path, play: Play) -> None:
    job = play()
    job.begin_attempt()
    waiting = start(home, "wait", job.id)
    job.end_attempt(_RAISED, last_step=10)
    job.end(JobState.FAILED, _RAISED)
    printed, _ = waiting.communicate(timeout=30)
    assert waiting.returncode == 1
    assert "failed" in printed.splitlines()[-1]
    assert "ValueError: boom (train.py:42)" in printed


def test_a_snapshot_is_exported_by_the_jobs_own_python(
    home: Path, play: Play, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = play("exported", python=sys.executable)
    none_yet = rekindle(home, "snapshots", "export", job.id, cwd=tmp_path)
    assert (none_yet.returncode, "holds no snapshot yet" in none_yet.stderr) == (2, True)
    monkeypatch.setenv("REKINDLE_JOB_ID", job.id)
    snapshots = Snapshots(job.run_dir.snapshots)
    for step in (40, 80):
        snapshots.save(step, 0, {"model": {"weight": torch.full((3,), float(step))}}, {})
    done = rekindle(home, "snapshots", "export", job.id, cwd=tmp_path)
    assert re.fullmatch(r"model.safetensors: 1 tensor, \d+ B, of step 80\n", done.stdout), done.stderr
    assert load_file(tmp_path / "model.safetensors")["weight"].tolist() == [80.0] * 3
    again = rekindle(home, "snapshots", "export", job.id, cwd=tmp_path)
    assert (again.returncode, "exists already: --force replaces it" in again.stderr) == (2, True)
    older = rekindle(home, "snapshots", "export", "exported", "--step", "40", "-o", "old.pt", cwd=tmp_path)
    assert older.returncode == 0, older.stderr
    assert torch.load(tmp_path / "old.pt", weights_only=True)["weight"].tolist() == [40.0] * 3
    assert rekindle(home, "snapshots", "list", job.id, "-o", "id").stdout.split() == ["80", "40"]


def test_an_export_that_fails_names_the_reason(home: Path, play: Play, tmp_path: Path) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\necho 'No module named torch' >&2\nexit 1\n")
    (tmp_path / "python").chmod(0o700)
    without_torch, gone = play("without-torch", python=str(tmp_path / "python")), play("gone", python="/nowhere/python")
    for reference, complaint in (
        ("nobody", "No job is called 'nobody'"),
        (without_torch.id, f"in {tmp_path}/python, the job's Python, exited with 1: No module named torch"),
        (gone.id, "The job's Python cannot be started: "),
    ):
        done = rekindle(home, "snapshots", "export", reference, cwd=tmp_path)
        assert done.returncode == 2
        assert complaint in done.stderr
    variables = {"REKINDLE_URL": "http://127.0.0.1:1", "REKINDLE_TOKEN": "t"}
    assert "run this there" in rekindle(home, "snapshots", "export", gone.id, variables=variables).stderr


def test_the_best_snapshot_is_marked_and_the_policy_shown(home: Path, play: Play) -> None:
    job = play()
    job.begin_attempt()
    for step, accuracy in ((40, 0.5), (80, 0.9375), (120, 0.75)):
        job.snapshot(step, score={"by": "accuracy", "value": accuracy})
    job.report(0, step=130, snapshot_policy="every 42 steps (auto: …)")
    listed = rekindle(home, "snapshots", job.id)
    assert [line.split()[-1] for line in listed.stdout.splitlines()] == ["SCORE", "0.75", "best", "0.5"]
    assert "13 B" in listed.stdout
    assert "0.9375 best" in listed.stdout
    assert "taken every 42 steps (auto: …)" in listed.stderr


def test_followed_logs_have_every_line_once_despite_a_killed_server(
    home: Path, play: Play, served: ServeProcess
) -> None:
    job = play()
    job.begin_attempt()
    job.write(b"step 1\n", rank=0)
    job.write(b"step 1 of the other\n", rank=1)
    following = start(home, "logs", "-f", job.id)
    assert following.stdout is not None
    first = {following.stdout.readline(), following.stdout.readline()}
    assert first == {"[rank 0] step 1\n", "[rank 1] step 1 of the other\n"}
    served.kill()
    job.write(b"while nobody served\n", rank=0)
    job.end_attempt(_KILLED, last_step=3)
    job.retry_in(0)
    served.start()
    job.begin_attempt(resumed_from_step=2)
    job.write(b"step 3\nno line end", rank=0)
    job.end_attempt(_DONE, last_step=4)
    job.end(JobState.SUCCEEDED, _DONE)
    printed, notes = following.communicate(timeout=30)
    assert following.returncode == 0
    assert printed.splitlines() == [
        "[rank 0] while nobody served",
        "── attempt 2, resumed from step 2 ──",
        "[rank 0] step 3",
        "[rank 0] no line end",
    ]
    assert "Server unreachable; the job keeps running; retrying (Ctrl-C ends)." in notes
    assert "Server reachable again." in notes


@pytest.mark.parametrize("words", [["logs", "-f"], ["wait"]])
def test_ctrl_c_leaves_the_job_alone_and_shows_how_to_continue(home: Path, play: Play, words: list[str]) -> None:
    job = play()
    job.begin_attempt()
    job.write(b"hello\n")
    watching = start(home, *words, job.id)
    assert watching.stdout is not None
    watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, notes = watching.communicate(timeout=30)
    assert watching.returncode == 130
    assert f"rekindle {' '.join(words)} {job.id}" in notes
    assert job.wanted() == "run"


def test_hostile_names_and_output_stay_text(home: Path, play: Play) -> None:
    job = play("\x1b]0;owned\x07[bold]x[/bold]\x9b31m")
    job.begin_attempt()
    job.write(b"\x1b]52;c;AAAA\x07\x1b[2Jharmless [red]text[/red]\r\n")
    for words in (["ps"], ["show", job.id], ["logs", job.id]):
        printed = rekindle(home, *words).stdout
        assert not _CONTROLS.search(printed), printed
    assert "[bold]x[/bold]" in rekindle(home, "ps").stdout
    assert rekindle(home, "logs", job.id).stdout == "[rank 0] harmless [red]text[/red]\n"
    assert "\x1b]52;c;AAAA\x07" in rekindle(home, "logs", "--raw", job.id).stdout


def test_one_rank_alone_is_shown_without_a_prefix(home: Path, play: Play) -> None:
    job = play()
    job.begin_attempt()
    job.write(b"a\nb\nc\n", rank=1)
    job.write(b"trouble\n", rank=1, stream="stderr")
    assert rekindle(home, "logs", job.id, "--rank", "1", "--stream", "stdout").stdout == "a\nb\nc\n"
    assert rekindle(home, "logs", job.id, "--rank", "1", "--tail", "1").stdout == "c\ntrouble\n"
    for words in ([], ["--by-time"], ["--grep", "a"]):
        refused = rekindle(home, "logs", job.id, "--rank", "7", *words)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "has no rank 7; it has ranks 0" in refused.stderr


def test_an_empty_log_is_noted(home: Path, play: Play) -> None:
    job = play()
    assert "The job has no attempt" in rekindle(home, "logs", job.id).stderr
    job.begin_attempt()
    job.write(b"trouble\n", stream="stderr")
    for words in ([], ["--by-time"], ["--tail", "3"]):
        empty = rekindle(home, "logs", job.id, "--rank", "0", "--stream", "stdout", *words)
        assert (empty.returncode, empty.stdout) == (0, "")
        assert empty.stderr == "rank 0 has written nothing to stdout in attempt 1\n"
    assert rekindle(home, "logs", job.id).stderr == ""
    job.end_attempt(_KILLED, last_step=3)
    job.begin_attempt(resumed_from_step=2)
    nothing = "no rank has written anything to stdout or stderr in attempt 2\n"
    until(lambda: rekindle(home, "logs", job.id).stderr == nothing, "the server has read that attempt 2 began")


def test_the_last_lines_are_as_many_as_were_asked_for(home: Path, play: Play) -> None:
    job = play()
    job.begin_attempt()
    lines = [f"line {number} {'x' * 100}" for number in range(13_000)]
    job.write("\n".join(lines).encode() + b"\n")
    job.end_attempt(_DONE, last_step=4)
    until(lambda: rekindle(home, "logs", job.id, "--by-time", "-n", "1").stdout, "the server has read that it ended")
    for words in ([], ["--by-time"], ["--grep", "x"]):
        shown = rekindle(home, "logs", job.id, "--rank", "0", "-n", "12000", *words).stdout.splitlines()
        assert [line[line.index("line") :] for line in shown if "line" in line] == lines[-12_000:], words


def test_grep_finds_the_lines_of_all_attempts(home: Path, play: Play) -> None:
    job = play()
    job.begin_attempt()
    job.write(b"NaN in layer 3\nstep 1\n", rank=1)
    job.write(b"nan again\n", rank=0, stream="stderr")
    job.end_attempt(_KILLED, last_step=3)
    job.begin_attempt(resumed_from_step=2)
    job.write(b"step 3\n")
    job.end_attempt(_DONE, last_step=4)
    until(lambda: "step 3" in rekindle(home, "logs", job.id).stdout, "the server has read that attempt 2 began")
    found = rekindle(home, "logs", job.id, "--grep", "nan")
    assert sorted(found.stdout.splitlines()) == ["[rank 0] nan again", "[rank 1] NaN in layer 3", "── attempt 1 ──"]
    assert found.stderr == "Lines found: 0 in attempt 2, 2 in attempt 1.\n"
    found = rekindle(home, "logs", job.id, "--grep", r"step \d$", "--regex", "-o", "json")
    assert [(json.loads(line)["attempt"], json.loads(line)["text"]) for line in found.stdout.splitlines()] == [
        (1, "step 1"),
        (2, "step 3"),
    ]
    assert rekindle(home, "logs", job.id, "--grep", "nan", "--attempt", "2").stdout == ""
    assert rekindle(home, "logs", job.id, "--grep", "nan", "-n", "1").stdout == ""
    refused = rekindle(home, "logs", job.id, "--grep", "nan", "--raw")
    assert (refused.returncode, "without --raw" in refused.stderr) == (2, True)


def test_a_change_that_is_declined_on_a_terminal_is_stopped(home: Path, play: Play) -> None:
    job = play()
    job.begin_attempt()
    job.end_attempt(_RAISED, last_step=10)
    job.end(JobState.FAILED, _RAISED)
    with terminal(home, "delete", job.id) as window:
        window.await_text(b"Delete this job and its files?")
        window.type(b"n\n")
        assert window.process.wait(timeout=30) == 1
    assert b"Stopped; nothing was changed." in window.seen
    assert rekindle(home, "show", job.id).returncode == 0


def test_on_a_terminal_wait_shows_a_bar_and_leaves_one_line(home: Path, play: Play) -> None:
    job = play()
    job.begin_attempt()
    job.report(0, step=500)
    with terminal(home, "wait", job.id) as window:
        until(lambda: b"step 500 of 1000" in window.seen, "the bar shows the step")
        job.end_attempt(_DONE, last_step=1000)
        job.end(JobState.SUCCEEDED, _DONE)
        assert window.process.wait(timeout=30) == 0
    assert b"digits succeeded" in window.seen.splitlines()[-1]
