"""`rekindle chaos` injects faults into real jobs, reports what each cost, and the jobs end as they must."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from cli_process import rekindle
from e2e.serve_process import ServeProcess
from e2e.served_job import ServedJob
from e2e.waiting import until
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.journal import RecordType
from rekindle_service.client import Client

_LONG = 240  # seconds: several attempts, on a busy machine
_SCRIPTS = Path(__file__).parent / "scripts"


def submit(client: Client, home: Path, *, steps: int, script: str = "paced.py") -> ServedJob:
    """A job that takes 0.1 s a step."""
    body = {
        "script": script,
        "code": {"path": str(_SCRIPTS)},
        "args": [str(steps), "0.1"],
        "ranks": 2,
        "device": "cpu",
        "hang_timeout": 3,
        "snapshot": {"every_steps": 5},
    }
    return ServedJob(client, home, body)


def chaos(home: Path, job: ServedJob, *words: str) -> list[dict[str, Any]]:
    """The reports of the faults; the job recovered from each."""
    done = rekindle(home, "chaos", job.id, "-o", "json", *words, timeout=_LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_job_recovers_from_every_kind_of_fault_and_each_is_diagnosed(
    home: Path, server: ServeProcess, client: Client
) -> None:
    job = submit(client, home, steps=150)
    faults = ["kill", "hang", "agent", "keeper", "corrupt-snapshot", "raise"]
    reports = chaos(home, job, "--rank", "1", *(word for fault in faults for word in ("--fault", fault)))
    assert [report["fault"] for report in reports] == faults
    diagnoses = [(report["outcome"]["class"], report["rank"]) for report in reports]
    assert diagnoses == [
        ("signal", 1),
        ("hang", 1),
        ("signal", None),
        ("keeper_lost", None),
        ("signal", 1),
        ("user_error", 1),
    ]
    for report in reports:
        assert report["recovered"]
        assert report["diagnosis_correct"], report
        assert report["attempt_after"] > report["attempt_before"]
        assert report["downtime"] > 0
        assert report["replayed_steps"] is not None
    damaged = reports[4]
    resumed = {record.attempt: record.step for record in job.records(RecordType.RESUMED)}
    assert resumed[damaged["attempt_after"]] not in (0, damaged["snapshot"])  # an older one, or shared memory's
    assert job.finish() == "succeeded"
    shown = rekindle(home, "show", job.id).stdout
    for line in ("kill rank 1", "hang rank 1", "agent", "keeper", f"corrupt-snapshot of step {damaged['snapshot']}"):
        assert f"fault injected: {line}\n" in shown
    reasons = [record.fault for record in job.records(RecordType.FAULT_INJECTED)]
    assert reasons == ["kill", "hang", "agent", "keeper", "corrupt-snapshot", "kill", "raise"]


@pytest.mark.soak
def test_the_table_shows_what_each_fault_cost(home: Path, server: ServeProcess, client: Client) -> None:
    job = submit(client, home, steps=60)
    words = ("--random", "--seed", "5", "--fault", "kill", "--fault", "crash", "--count", "2", "--every", "0.5")
    done = rekindle(home, "chaos", job.id, *words, timeout=_LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 5: repeat the same faults with --seed 5" in done.stdout
    table = done.stdout.splitlines()[-3:]
    assert table[0].split() == ["FAULT", "ATTEMPT", "RECOVERED", "DOWN", "REPLAYED", "DIAGNOSIS", "CORRECT"]
    for line in table[1:]:
        assert "signal, rank" in line
        assert line.rstrip().endswith("yes")
    assert job.finish() == "succeeded"


@pytest.mark.soak
def test_ranks_keep_training_while_chaos_replaces_the_server(home: Path, server: ServeProcess, client: Client) -> None:
    job = submit(client, home, steps=80)
    job.reach(beyond=1)
    pids, url = job.pids(), server.url
    try:
        (report,) = chaos(home, job, "--fault", "server")
        assert (report["attempt_before"], report["attempt_after"], report["downtime"]) == (1, 1, 0.0)
        assert "no server for" in report["note"]
        assert job.pids() == pids
        announced = json.loads((home / "server.json").read_text())
        assert announced["url"].rstrip("/") == url
        assert job.finish() == "succeeded"
    finally:
        end_background_server(home)


def end_background_server(home: Path) -> None:
    process = ProcessIdentity.of(json.loads((home / "server.json").read_text())["pid"])
    assert process is not None
    os.kill(process.pid, signal.SIGTERM)
    until(lambda: not process.alive(), "the server that chaos has started has ended")


def test_faults_after_the_end_of_a_job_are_reported(home: Path, server: ServeProcess, client: Client) -> None:
    job = submit(client, home, steps=5)
    done = rekindle(home, "chaos", job.id, "--at-step", "1000", "--count", "2", timeout=_LONG)
    assert done.returncode == 1
    assert "Not injected: 2 faults of 2, since the job succeeded" in done.stdout
    rejected = rekindle(home, "chaos", job.id)
    assert rejected.returncode == 2
    assert "chaos needs a running job; the state of " in rejected.stderr
    assert " is succeeded" in rejected.stderr


@pytest.mark.soak
def test_a_script_without_reports_has_recovered_when_its_ranks_run(
    home: Path, server: ServeProcess, client: Client
) -> None:
    job = submit(client, home, steps=100, script="silent.py")
    (report,) = chaos(home, job, "--fault", "kill", "--rank", "0")
    assert report["diagnosis_correct"]
    assert (report["attempt_before"], report["attempt_after"], report["replayed_steps"]) == (1, 2, None)
    assert report["downtime"] > 0
    assert job.finish() == "succeeded"
