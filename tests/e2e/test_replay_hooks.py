"""A replay calls functions of a file or opens a debugger, and its steps are those of the original all the same."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cli_process import environment, heed_interrupts, rekindle
from doc_pages import blocks
from e2e.served_job import ServedJob
from e2e.test_replay import submit
from e2e.waiting import until
from rekindle.contract.run_dir.rank_records import DEBUGGER_PHASE
from rekindle_service.client import Client, is_settled

IDENTICAL = r"Identical over \d+ common steps, \d+ to 9\."  # the first follows from the snapshot
HOOK = """
def before_step(step):
    print("before", step.number, step.rank, type(step.model).__name__, len(step.batch), len(step.optimizers))

def after_step(step):
    print("after", step.number, step.model[0].weight.grad is not None, step.run.step, step.optimizer is not None)
"""


@pytest.fixture
def job(client: Client, home: Path) -> Iterator[ServedJob]:
    trained = submit(client, home, "ddp", "--epochs", "1")
    assert trained.finish() == "succeeded"
    yield trained
    for each in [each for each in client.jobs() if not is_settled(each)]:  # a debugger that no test has closed
        client.cancel(each["id"])
        client.wait(each["id"])


def latest(client: Client, home: Path, original: ServedJob) -> ServedJob:
    """The latest replay of the job."""
    number = client.job(original.id)["number"]
    found = next(each for each in client.jobs() if each["number"] > number)
    return ServedJob(client, home, {"ranks": 2}, found["id"])


def printed(job: ServedJob, rank: int) -> list[str]:
    return job.run_dir.attempt(job.attempt()).rank(rank).log("stdout").read_text().splitlines()


def test_functions_of_a_file_are_called_in_the_step_on_all_ranks_or_one(
    client: Client, home: Path, tmp_path: Path, job: ServedJob
) -> None:
    hook = tmp_path / "probe.py"
    hook.write_text(HOOK)
    before = sorted(str(path) for path in job.run_dir.root.rglob("*"))
    for words, ranks in (((), (0, 1)), (("--rank", "1"), (1,))):
        done = rekindle(home, "replay", job.id, "--step", "7", "--until", "9", "--script", str(hook), *words)
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.search(IDENTICAL, done.stdout), done.stdout
        replayed = latest(client, home, job)
        for rank in (0, 1):
            lines = [f"before 7 {rank} Sequential 2 1", "after 7 True 6 True"] if rank in ranks else []
            assert printed(replayed, rank) == lines
        assert replayed.run_dir.replay_hook.read_text() == HOOK
    done = rekindle(home, "replay", job.id, "--step", "7", "-o", "json")
    assert json.loads(done.stdout)["state"] == "succeeded", done.stderr
    (shown,) = blocks("python", "docs/replay.md")
    assert client.wait(client.replay(job.id, 7, script=shown.text)["id"])["state"] == "succeeded"
    assert sorted(str(path) for path in job.run_dir.root.rglob("*")) == before


def test_an_error_of_a_hook_fails_the_replay_and_names_its_line(
    client: Client, home: Path, tmp_path: Path, job: ServedJob
) -> None:
    hook = tmp_path / "probe.py"
    hook.write_text(HOOK)
    for text, line, error in (
        ("def after_step(step):\n    pass\n\nimport nothing_of_this_name\n", 4, "ModuleNotFoundError"),
        ("def after_step(step):\n    helper(step)\n\ndef helper(step):\n    step.bach\n", 5, "AttributeError"),
        ("if False:\n    def after_step(step): ...\n", None, "AttributeError"),
    ):
        replayed = client.wait(client.replay(job.id, 7, script=text, rank=1)["id"])
        outcome = replayed["outcome"]
        assert replayed["state"] == "failed"
        assert outcome is not None
        assert (outcome["rank"], outcome["exception"]) == (1, error), outcome
        if line is not None:
            assert (outcome["file"], outcome["line"]) == ("replay_hook.py", line)
    (tmp_path / "latin.py").write_bytes(b"# caf\xe9\ndef before_step(step): ...\n")
    for words, reason in (
        (("--script", str(tmp_path / "latin.py")), "must be UTF-8, and byte 6 is 0xe9"),
        (("--script", str(tmp_path / "none.py")), "does not exist"),
        (("--script", str(hook), "--pdb"), "only one of script and pdb"),
        (("--pdb", "-o", "json"), "pass --detach with -o json"),
        (("--pdb", "--rank", "2"), "must be a rank of the replay: 0 to 1"),
    ):
        refused = rekindle(home, "replay", job.id, "--step", "7", *words)
        assert (refused.returncode, reason in " ".join(refused.stderr.split())) == (2, True), refused.stderr


@contextmanager
def terminal(home: Path, *words: str) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "rekindle_service", *words],
        env=environment(home), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=heed_interrupts,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def read_prompt(process: "subprocess.Popen[str]", after: str = "") -> str:
    """What comes up to the next prompt after a text."""
    assert process.stdout is not None
    found = ""
    while not (after in found and found.endswith("(Pdb) ")):
        character = process.stdout.read(1)
        assert character, found + process.communicate()[1]
        found += character
    return found


def send(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(line)
    process.stdin.flush()


def test_a_debugger_outlives_its_terminal_and_changes_nothing_of_the_training(
    client: Client, home: Path, job: ServedJob
) -> None:
    with terminal(home, "replay", job.id, "--step", "7", "--until", "9", "--pdb", "--rank", "1") as first:
        assert "for a, b in" not in (shown := read_prompt(first))
        assert "optimizer.zero_grad()" in shown
        send(first, "p run.rank, run.step, len(batch), type(model).__name__, type(optimizer).__name__\n")
        assert "(1, 6, 2, 'Sequential', 'AdamW')" in read_prompt(first)
        replayed = latest(client, home, job)
        status = replayed.status(1)
        assert status is not None
        assert status.phase == DEBUGGER_PHASE
        with terminal(home, "attach", replayed.id) as busy:
            assert busy.stderr is not None
            assert "has another terminal" in busy.stderr.readline()
            busy.send_signal(signal.SIGINT)
            assert (busy.wait(30), "Detached" in busy.stderr.read()) == (130, True)
        first.send_signal(signal.SIGKILL)
        first.wait()
    with terminal(home, "attach", str(client.job(replayed.id)["number"])) as second:
        assert "optimizer.zero_grad()" in read_prompt(second, "'AdamW')\n")
        send(second, "b 69\nc\n")
        read_prompt(second)
        assert "run.log(loss=loss)" in read_prompt(second)
        send(second, "cl 1\n")
        out, err = second.communicate("c\n", timeout=30)
        assert (second.returncode, "The debugger is closed." in err) == (0, True), out + err
    assert replayed.finish() == "succeeded"
    same = rekindle(home, "diff", job.id, replayed.id)
    assert (same.returncode, bool(re.fullmatch(f"{IDENTICAL}\n", same.stdout))) == (0, True), same.stdout
    closed = rekindle(home, "attach", replayed.id)
    assert (closed.returncode, "is not open" in closed.stderr) == (0, True)
    for words, reason in (((job.id,), "has no debugger"), ((replayed.id, "--rank", "0"), "is in rank 1")):
        refused = rekindle(home, "attach", *words)
        assert (refused.returncode, reason in refused.stderr) == (2, True), refused.stderr


def test_the_end_of_a_debugged_rank_and_quit_are_reported(client: Client, home: Path, job: ServedJob) -> None:
    with terminal(home, "replay", job.id, "--step", "3", "--pdb") as first:
        read_prompt(first)
        latest(client, home, job).kill_rank(0)
        assert first.stderr is not None
        assert (first.wait(60), "no longer runs" in (err := first.stderr.read())) == (1, True), err
    with terminal(home, "replay", job.id, "--step", "3", "--pdb") as second:
        read_prompt(second)
        out, err = second.communicate("q\n", timeout=60)
        assert (second.returncode, "The debugger is closed." in err) == (1, True), out + err
    outcome = client.attempts(latest(client, home, job).id)[-1]["outcome"]
    assert outcome is not None
    assert (outcome["exception"], outcome["file"]) == ("BdbQuit", "replayed.py")
    with terminal(home, "replay", job.id, "--step", "3", "--pdb") as third:
        read_prompt(third)
        third.send_signal(signal.SIGINT)
        third.communicate(timeout=30)
        assert third.returncode == 130
    cancelled = latest(client, home, job)
    assert rekindle(home, "cancel", cancelled.id).returncode == 0
    assert cancelled.finish(60) == "cancelled"
    until(lambda: not any(map(_alive, cancelled.pids().values())), "the ranks have ended", 10)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
