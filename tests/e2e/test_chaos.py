"""`rekindle chaos` strikes real jobs of a real server, tells what each fault cost, and the jobs end as they must."""

import json
import os
import signal
from collections.abc import Iterator
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
from rekindle_service.config.settings import Settings

_LONG = 240  # seconds: several attempts, on a busy machine
_SCRIPTS = Path(__file__).parent / "scripts"


@pytest.fixture
def client(server: ServeProcess, home: Path) -> Iterator[Client]:
    with Client.from_home(Settings(home=home)) as client:
        yield client


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
    """The costs of the faults; the job came back from each."""
    done = rekindle(home, "chaos", job.id, "-o", "json", *words, timeout=_LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_job_comes_back_from_every_kind_of_fault_and_each_is_named(
    home: Path, server: ServeProcess, client: Client
) -> None:
    job = submit(client, home, steps=150)
    faults = ["kill", "hang", "agent", "keeper", "corrupt-snapshot", "raise"]
    costs = chaos(home, job, "--rank", "1", *(word for fault in faults for word in ("--fault", fault)))
    assert [cost["fault"] for cost in costs] == faults
    told = [(cost["outcome"]["class"], cost["rank"]) for cost in costs]
    assert told == [
        ("signal", 1),
        ("hang", 1),
        ("signal", None),
        ("keeper_lost", None),
        ("signal", 1),
        ("user_error", 1),
    ]
    for cost in costs:
        assert cost["came_back"]
        assert cost["named_rightly"], cost
        assert cost["attempt_after"] > cost["attempt_before"]
        assert cost["downtime"] > 0
        assert cost["steps_repeated"] is not None
    damaged = costs[4]
    resumed = {record.attempt: record.step for record in job.records(RecordType.RESUMED)}
    assert resumed[damaged["attempt_after"]] not in (0, damaged["snapshot"])  # an older one, or shared memory's
    assert job.finish() == "succeeded"
    shown = rekindle(home, "show", job.id).stdout
    for line in ("kill rank 1", "hang rank 1", "agent", "keeper", f"corrupt-snapshot of step {damaged['snapshot']}"):
        assert f"fault injected: {line}\n" in shown
    reasons = [record.fault for record in job.records(RecordType.FAULT_INJECTED)]
    assert reasons == ["kill", "hang", "agent", "keeper", "corrupt-snapshot", "kill", "raise"]


def test_the_table_tells_of_each_fault_what_it_cost(home: Path, server: ServeProcess, client: Client) -> None:
    job = submit(client, home, steps=60)
    words = ("--random", "--seed", "5", "--fault", "kill", "--fault", "crash", "--count", "2", "--every", "0.5")
    done = rekindle(home, "chaos", job.id, *words, timeout=_LONG)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "seed 5: the same faults come again with --seed 5" in done.stdout
    table = done.stdout.splitlines()[-3:]
    assert table[0].split() == ["FAULT", "ATTEMPT", "BACK", "DOWN", "STEPS", "REPEATED", "TOLD", "AS", "RIGHT"]
    for line in table[1:]:
        assert "signal, rank" in line
        assert line.rstrip().endswith("yes")
    assert job.finish() == "succeeded"


def test_ranks_train_on_while_chaos_replaces_the_server(home: Path, server: ServeProcess, client: Client) -> None:
    job = submit(client, home, steps=80)
    job.reach(beyond=1)
    pids, url = job.pids(), server.url
    try:
        (cost,) = chaos(home, job, "--fault", "server")
        assert (cost["attempt_before"], cost["attempt_after"], cost["downtime"]) == (1, 1, 0.0)
        assert "no server for" in cost["remark"]
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


def test_a_job_that_ends_before_a_fault_strikes_is_told(home: Path, server: ServeProcess, client: Client) -> None:
    job = submit(client, home, steps=5)
    done = rekindle(home, "chaos", job.id, "--at-step", "1000", "--count", "2", timeout=_LONG)
    assert done.returncode == 1
    assert "2 of 2 faults did not strike: the job was succeeded before" in done.stdout
    refused = rekindle(home, "chaos", job.id)
    assert refused.returncode == 2
    assert "chaos needs a running job; this one is succeeded" in refused.stderr


def test_a_script_that_knows_nothing_of_rekindle_is_back_when_its_ranks_run(
    home: Path, server: ServeProcess, client: Client
) -> None:
    job = submit(client, home, steps=100, script="silent.py")
    (cost,) = chaos(home, job, "--fault", "kill", "--rank", "0")
    assert cost["named_rightly"]
    assert (cost["attempt_before"], cost["attempt_after"], cost["steps_repeated"]) == (1, 2, None)
    assert cost["downtime"] > 0
    assert job.finish() == "succeeded"
