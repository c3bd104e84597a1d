"""`rekindle chaos` before any fault is injected: what is impossible is rejected in one sentence."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli_process import rekindle
from cli_terminal import terminal
from e2e.played_job import PlayedJob
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.states import JobState

pytestmark = pytest.mark.long


@pytest.fixture
def played(served_home: Path) -> Iterator[PlayedJob]:
    job = PlayedJob(served_home, "digits")
    yield job
    job.close()


def test_wrong_options_are_rejected_in_one_sentence(served_home: Path, played: PlayedJob) -> None:
    played.begin_attempt()
    for words, shown in (
        (["--fault", "explode"], "unknown fault 'explode'; known: kill"),
        (["--count", "-1"], "--count"),
        (["--count", "0"], "--count"),
        (["--rank", "-1"], "--rank"),
        (["--rank", "2"], "--rank 2: the last rank of the job is 1"),
        (["--every", "nan"], "--every"),
        (["--every", "inf"], "not inf"),
        (["--every", "soon"], "--every"),
    ):
        done = rekindle(served_home, "chaos", played.id, *words)
        assert done.returncode == 2, done.stdout
        assert shown in done.stderr
    assert rekindle(served_home, "chaos", "no-such-job").returncode == 2
    elsewhere = {"REKINDLE_URL": "http://127.0.0.1:9", "REKINDLE_TOKEN": "x"}
    done = rekindle(served_home, "chaos", played.id, "--fault", "server", variables=elsewhere)
    assert (done.returncode, "only the server of this machine" in done.stderr) == (2, True)


def test_a_finished_job_is_rejected(served_home: Path, played: PlayedJob) -> None:
    played.begin_attempt()
    done = Outcome(OutcomeClass.SUCCESS, "every rank was done")
    played.end_attempt(done, last_step=10)
    played.end(JobState.SUCCEEDED, done)
    rekindle(served_home, "wait", played.id)
    rejected = rekindle(served_home, "chaos", played.id)
    assert rejected.returncode == 2
    assert "chaos needs a running job; the state of " in rejected.stderr
    assert " is succeeded" in rejected.stderr


def test_a_keeper_that_does_not_respond_is_reported(served_home: Path, played: PlayedJob) -> None:
    played.begin_attempt()
    played.report(0, step=5)
    done = rekindle(served_home, "chaos", played.id, "--rank", "1", "--at-step", "5")
    assert done.returncode == 1
    assert "not injected: the job's keeper did not respond" in done.stdout


def test_on_a_terminal_nothing_is_injected_before_a_confirmation(served_home: Path, played: PlayedJob) -> None:
    played.begin_attempt()
    with terminal(served_home, "chaos", played.id) as window:
        window.await_text(b"Inject faults into digits")
        window.type(b"n\n")
        assert window.process.wait(timeout=60) == 1
    assert b"into attempt" not in window.seen
