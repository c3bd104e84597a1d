"""`rekindle doctor` on a real machine, and on a job whose keeper and ranks the test plays."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cli_process import environment, rekindle
from doc_pages import ROOT
from e2e.played_job import PlayedJob
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from rekindle import __version__

pytestmark = pytest.mark.long


@pytest.fixture
def played(served_home: Path) -> Iterator[PlayedJob]:
    job = PlayedJob(served_home, "digits")
    yield job
    job.close()


def findings(home: Path, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    done = rekindle(home, "doctor", "-o", "json", *words, timeout=180)
    return done.returncode, {finding["name"]: finding for finding in json.loads(done.stdout)}


def test_this_machine_passes_and_so_does_a_private_home(served_home: Path) -> None:
    code, found = findings(served_home)
    problems = {name: finding for name, finding in found.items() if finding["level"] == "problem"}
    assert problems == {}
    assert code == 0
    assert {"python", "torch", "gloo", "loopback", "host name", "disk", "pidfd", "clock", "token"} <= set(found)
    assert found["python"]["detail"].endswith(f"({sys.executable})")
    assert found["server"]["detail"].endswith("answers")


def test_an_open_token_and_a_killed_server_are_found(home: Path, tmp_path: Path) -> None:
    with ServeProcess(home) as server:
        server.kill()
    (home / "token").chmod(0o644)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nexit 1\n")
    python.chmod(0o755)
    code, found = findings(home, "--python", str(python))
    assert code == 1
    levels = {name: found[name]["level"] for name in ("python", "token", "home", "server")}
    assert levels == {"python": "problem", "token": "problem", "home": "ok", "server": "warning"}
    names = rekindle(home, "doctor", "-o", "id", "--python", str(python)).stdout.split("\n")
    assert {"python", "token", "server"} <= set(names)


def test_a_checkout_that_is_not_installed_is_as_good_as_an_installed_one(tmp_path: Path) -> None:
    libraries = tmp_path / "libraries"
    libraries.mkdir()
    for entry in Path(typer.__file__).parents[1].iterdir():
        if "rekindle" not in entry.name:
            (libraries / entry.name).symlink_to(entry)
    paths = ":".join(map(str, (libraries, ROOT / "service", ROOT / "worker")))
    program = [sys.executable, "-S", "-m", "rekindle_service"]
    command = [*program, "doctor", "-o", "json", "--python", sys.executable]
    variables = environment(tmp_path / "home", PYTHONPATH=paths)
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr
    assert {finding["level"] for finding in json.loads(done.stdout)} <= {"ok", "warning"}
    named = subprocess.run([*program, "--version"], env=variables, capture_output=True, text=True, check=True)
    assert named.stdout == f"rekindle {__version__}\n"


def test_a_running_job_is_checked_through_server_lock_and_run_directory(served_home: Path, played: PlayedJob) -> None:
    played.begin_attempt()
    played.report(0, step=7)
    played.snapshot(5)
    job = until(lambda: _running(served_home, played.id), "the server knows that the job runs")
    code, found = findings(served_home, job)
    assert code == 0
    assert found["state"]["detail"].startswith("running; step 7 of 1000")
    assert found["keeper"]["level"] == "ok"
    assert "step 7" in found["rank 0"]["detail"]
    assert found["collectives"]["level"] == "ok"
    assert "step 5" in found["snapshot"]["detail"]


def _running(home: Path, job_id: str) -> str | None:
    shown = json.loads(rekindle(home, "show", job_id, "-o", "json").stdout)
    return job_id if shown["state"] == "running" and shown["step"] == 7 else None


def test_a_rank_without_stacks_is_printed_with_the_reason(served_home: Path, played: PlayedJob) -> None:
    played.begin_attempt()
    done = rekindle(served_home, "doctor", played.id, "--stacks")
    assert done.returncode == 0, done.stderr
    assert "rank 0\n" in done.stdout
    assert "has not started its script yet" in done.stdout


def test_wrong_commands_are_rejected_in_one_sentence(served_home: Path, played: PlayedJob) -> None:
    for words in (["no-such-job"], ["--stacks"]):
        done = rekindle(served_home, "doctor", *words)
        assert done.returncode == 2, done.stdout
