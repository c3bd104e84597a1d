"""Commands that keep running: `rekindle top` on a terminal, followers whose token is revoked; and shell completion."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from cli_process import environment, rekindle, start
from cli_terminal import terminal
from e2e.played_job import PlayedJob, played_jobs
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import JobState
from rekindle.keeper.observers.log_growth import LogTimesWriter
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings

_DONE = Outcome(OutcomeClass.SUCCESS, "every rank was done")
_LEAVES_SCREEN = b"\x1b[?1049l"

Play = Callable[..., PlayedJob]


@pytest.fixture
def play(served: ServeProcess, served_home: Path) -> Iterator[Play]:
    with played_jobs(served_home) as make:

        def begin(name: str) -> PlayedJob:
            job = make(name)
            job.begin_attempt()
            return job

        yield begin


def test_top_survives_a_restart_and_restores_the_screen(served_home: Path, served: ServeProcess, play: Play) -> None:
    job = play("digits\x1b]0;owned\x07")
    job.report(0, step=500)
    with terminal(served_home, "top") as window:
        window.await_text(b"500/1000")
        window.await_text(b"cpu:0")
        served.kill()
        window.await_text(b": Server unreachable; jobs keep running")
        served.start()
        job.report(0, step=600)
        window.await_text(b"600/1000")
        window.resize(40, 8)
        window.await_text("…".encode())
        assert window.interrupt() == 0
        until(lambda: _LEAVES_SCREEN in window.seen, "the terminal is as it was")
    assert b"\x1b]0;" not in window.seen
    assert b"Traceback" not in window.seen
    assert job.wanted() == "run"


def test_keys_filter_jobs_open_one_follow_its_log_and_return(served_home: Path, play: Play) -> None:
    job = play("findme")
    job.write(b"loss 0.125\n", rank=0)
    with terminal(served_home, "top") as window:
        window.await_text(b"findme")
        window.type(b"/FINDME")
        window.await_text(b"filter: FINDME")
        window.type(b"\r\r")
        window.await_text(b"HEARTBEAT")
        for leave in (
            lambda: window.process.send_signal(signal.SIGINT),
            partial(window.type, b"q"),
            partial(window.type, b"\x1b"),
        ):
            window.type(b"l")
            window.await_text(b"loss 0.125")
            assert _LEAVES_SCREEN in window.seen
            leave()
            window.await_text(b"HEARTBEAT")
        window.type(b"q")
        assert window.process.wait(timeout=30) == 0
    assert b"Traceback" not in window.seen
    assert job.wanted() == "run"


def test_top_of_a_job_shows_its_ranks_and_prints_once_without_a_terminal(served_home: Path, play: Play) -> None:
    job = play("ranks")
    job.write(b"loss 0.25\n", rank=1)
    with terminal(served_home, "top", "ranks") as window:
        window.await_text(b"loss 0.25")
        job.write(b"\x1b[2Jloss 0.125\n", rank=1)
        window.await_text(b"loss 0.125")
        assert window.interrupt() == 0
    printed = rekindle(served_home, "top", "ranks")
    assert printed.returncode == 0
    assert [line.split()[:2] for line in printed.stdout.splitlines()[-2:]] == [["0", "running"], ["1", "running"]]
    ranks = json.loads(rekindle(served_home, "top", "ranks", "-o", "json").stdout)["rank_states"]
    assert [rank["rank"] for rank in ranks] == [0, 1]
    frame = json.loads(rekindle(served_home, "top", "-o", "json").stdout)
    assert job.id in {each["id"] for each in frame["jobs"]}
    assert {slot["name"] for slot in frame["devices"]} >= {"cpu:0", "cpu:1"}


def test_logs_and_wait_answer_programs_in_json(served_home: Path, play: Play) -> None:
    job = play("for-programs")
    job.write(b"a \x1b[31mb\n", rank=1)
    job.end_attempt(_DONE, last_step=10)
    job.end(JobState.SUCCEEDED, _DONE)
    done = rekindle(served_home, "wait", job.id, "-o", "json")
    assert (done.returncode, json.loads(done.stdout)["state"]) == (0, "succeeded")
    printed = rekindle(served_home, "logs", job.id, "-o", "json").stdout
    assert json.loads(printed) == {"attempt": 1, "rank": 1, "stream": "stdout", "text": "a \x1b[31mb"}
    assert "\x1b" not in printed


def test_logs_by_time_are_in_the_order_in_which_the_lines_came(served_home: Path, play: Play) -> None:
    job = play("by-time")
    times = LogTimesWriter(job.run_dir.attempt(1), range(2))
    for rank, text in ((1, b"first\n"), (0, b"second \x1b[2J\n"), (1, b"third\nbar 1\rbar 2")):
        job.write(text, rank=rank)
        times.record()
    printed = rekindle(served_home, "logs", job.id, "--by-time").stdout
    lines = [line[len("00:00:00 ") :] for line in printed.splitlines()]
    assert lines == ["[rank 1] first", "[rank 0] second ", "[rank 1] third", "[rank 1] bar 2"]
    tail = rekindle(served_home, "logs", job.id, "--by-time", "--rank", "1", "-n", "1", "-o", "json").stdout
    assert [json.loads(line)["text"] for line in tail.splitlines()] == ["third", "bar 2"]
    refused = rekindle(served_home, "logs", job.id, "--by-time", "--raw")
    assert (refused.returncode, "without --raw" in refused.stderr) == (2, True)


def test_following_by_time_continues_until_the_job_has_ended(served_home: Path, play: Play) -> None:
    job = play("by-time-live")
    job.write(b"first\n")
    following = start(served_home, "logs", job.id, "--by-time", "-f")
    assert following.stdout is not None
    assert following.stdout.readline().endswith("[rank 0] first\n")
    job.write(b"second\n")
    assert following.stdout.readline().endswith("[rank 0] second\n")
    job.end_attempt(_DONE, last_step=10)
    job.begin_attempt(10)
    job.write(b"third\n")
    assert "attempt 2" in following.stdout.readline()
    assert following.stdout.readline().endswith("[rank 0] third\n")
    job.end_attempt(_DONE, last_step=20)
    job.end(JobState.SUCCEEDED, _DONE)
    following.communicate(timeout=60)
    assert following.returncode == 0


def test_logs_of_an_unknown_attempt_are_rejected_with_a_list_of_the_known_ones(served_home: Path, play: Play) -> None:
    job = play("once")
    job.write(b"hello\n")
    assert "hello" in rekindle(served_home, "logs", "once", "--attempt", "1").stdout
    for words in (["--attempt", "9"], ["--attempt", "9", "--rank", "0"]):
        done = rekindle(served_home, "logs", "once", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert "has no attempt 9; it has attempt 1" in done.stderr


def completed(home: Path, words: str) -> list[str]:
    """What bash is offered for the last of ``words``."""
    request = {"_REKINDLE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    command = "import sys; sys.argv = ['rekindle']; from rekindle_service.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", command], env=environment(home, **request), capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_a_shell_completes_verbs_and_the_names_of_jobs(served_home: Path, play: Play) -> None:
    job = play("complete-me")
    hostile = play("$(reboot)")
    assert completed(served_home, "rekindle dra") == ["drain"]
    assert completed(served_home, "rekindle show comp") == ["complete-me"]
    assert completed(served_home, f"rekindle logs -f {job.id[:6]}") == [job.id]
    offered = completed(served_home, "rekindle cancel ")
    assert hostile.id in offered
    assert "complete-me" in offered
    assert not any("$" in each for each in offered)


def test_experiments_are_found_and_a_misspelt_one_is_answered_with_the_nearest_name(served_home: Path) -> None:
    with Client.from_home(Settings(home=served_home)) as client:
        request = {"name": "rates", "array": "0-1", "base": {"recipe": "ddp", "hold": True}}
        ids = [client.submit_experiment(request)["id"] for _ in range(2)]
        assert client.find_experiment("rates")["id"] == ids[1]
        assert client.find_experiment("#1")["id"] == client.find_experiment(ids[0][:6])["id"] == ids[0]
    done = rekindle(served_home, "experiment", "--show", "rtaes")
    assert (done.returncode, "did you mean 'rates' (#2)?" in done.stderr) == (2, True)


def test_without_a_server_a_shell_is_offered_nothing_and_sees_no_error(home: Path) -> None:
    (home / "rekindle.toml").write_text("port = [")
    assert completed(home, "rekindle show d") == []


def test_a_revoked_token_ends_the_follower_with_advice(served_home: Path, served: ServeProcess, play: Play) -> None:
    job = play("revoked")
    job.write(b"hello\n")
    following = start(served_home, "logs", "-f", job.id, REKINDLE_URL=served.url, REKINDLE_TOKEN=served.token)
    assert following.stdout is not None
    assert following.stdout.readline() == "[rank 0] hello\n"
    served.stop()
    (served_home / "token").unlink()
    served.start()
    _, notes = following.communicate(timeout=60)
    assert following.returncode == 2
    assert f"{served.url} does not accept this token" in notes
    assert "REKINDLE_TOKEN" in notes
    assert job.wanted() == "run"
