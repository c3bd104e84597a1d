"""Jobs of version 0.1 continue under this version: drained, never started, running, or with a lost keeper."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import old_home
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from rest_api import RestApi

OLD_KEEPER = Path(__file__).parents[1] / "fakes" / "old_keeper.py"
_LONG = 180  # seconds


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return old_home.unpack(tmp_path / "old")


@pytest.fixture
def drained(old: Path) -> Path:
    """The run directory of the drained job."""
    return old_home.run_directory(old, "drained")


@pytest.fixture
def server(old: Path) -> ServeProcess:
    """Not started yet."""
    return ServeProcess(old, cpu_slots=5)


@pytest.fixture
def api(server: ServeProcess) -> RestApi:
    return RestApi(server)


@pytest.fixture
def old_keeper(old: Path, drained: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The drained job runs again under a keeper of version 0.1, whose server has gone."""
    intent = {"want": "run", "run": 2, "devices": ["cpu:0", "cpu:1"], "max_failures": 3, "snapshot": None}
    (drained / "intent.json").write_text(json.dumps(intent) + "\n")
    with closing(sqlite3.connect(old / "rekindle.db")) as database, database:
        columns = "state = 'starting', intent = 'run', run = 2, devices = ?, waiting_for = NULL, outcome = NULL"
        database.execute(f"UPDATE job SET {columns} WHERE id = ?", ('["cpu:0", "cpu:1"]', drained.name))  # noqa: S608
    environment = {**os.environ, "REKINDLE_RUN_DIR": str(drained)}
    keeper = subprocess.Popen([sys.executable, "-P", str(OLD_KEEPER), str(drained)], env=environment)
    until(lambda: len(old_home.records(drained, "ranks_running")) == 2, "the old keeper has begun its attempt")
    yield keeper
    keeper.kill()
    keeper.wait()


def snapshot_of(run: Path) -> int:
    return max(int(folder.name) for folder in (run / "snapshots").glob("[0-9]*"))


def await_state(api: RestApi, name: str, state: str, timeout: float = _LONG) -> None:
    until(lambda: api.states()[name] == state, f"the job {name} is {state}", timeout)


def printed_weights(api: RestApi, name: str) -> list[float]:
    log = api.request("GET", f"{api.path(name)}/ranks/0/log").text
    return [float(weight) for weight in re.findall(r"^weights (.*)$", log, re.MULTILINE)[-1].split()]


def test_drained_and_waiting_jobs_continue_as_if_nothing_had_been_upgraded(
    server: ServeProcess, api: RestApi, drained: Path
) -> None:
    step = snapshot_of(drained)
    undisturbed = {"name": "undisturbed", "script": "tiny.py", "code": {"path": str(drained / "code")}}
    with server:
        api.post(f"{api.path('drained')}/resume")
        api.post(f"{api.path('never started')}/resume")
        api.post("/jobs", {**undisturbed, "device": "cpu", "ranks": 2})
        await_state(api, "drained", "succeeded")
        before, after = api.get(f"{api.path('drained')}/attempts")["items"]
        assert (before["outcome"]["class"], after["outcome"]["class"]) == ("preempted", "success")
        assert (after["number"], after["resumed_from_step"], after["last_step"]) == (2, step, 32)
        metrics = api.get(f"{api.path('drained')}/metrics", name="loss", max_points=1000)["items"]
        (steps,) = [[point[0] for point in series["points"]] for series in metrics if series["attempt"] == 2]
        assert steps == list(range(step + 1, 33)), "every step that was missing, and none twice"
        for name in ("waiting", "never started", "undisturbed"):
            await_state(api, name, "succeeded")
        # Not to the last bit: the first steps were computed on another machine.
        assert printed_weights(api, "drained") == pytest.approx(printed_weights(api, "undisturbed"), rel=1e-3)


@pytest.mark.soak
def test_ended_jobs_can_be_resumed_from_a_chosen_snapshot_and_deleted(
    server: ServeProcess, api: RestApi, old: Path
) -> None:
    run, failed = (old_home.run_directory(old, name) for name in ("cancelled", "failed"))
    steps = sorted(int(folder.name) for folder in (run / "snapshots").glob("[0-9]*"))
    with server:
        api.post(f"{api.path('cancelled')}/resume", {"snapshot": steps[0]})
        await_state(api, "cancelled", "succeeded")
        assert api.get(f"{api.path('cancelled')}/attempts")["items"][-1]["resumed_from_step"] == steps[0]
        assert api.request("DELETE", api.path("failed")).status == 204
        until(lambda: not any(old.glob(f"runs/*{failed.name}*")), "its directory is removed")


def test_a_running_job_of_an_old_keeper_is_adopted_and_its_end_recorded(
    server: ServeProcess, api: RestApi, drained: Path, old_keeper: "subprocess.Popen[bytes]"
) -> None:
    with server:
        await_state(api, "drained", "running")
        job = api.jobs()["drained"]
        until(lambda: api.jobs()["drained"]["step"] == snapshot_of(drained) + 2, "its progress is shown")
        assert (job["attempt"], job["restarts"], job["devices"]) == (2, 0, ["cpu:0", "cpu:1"])
        running = api.get(f"{api.path('drained')}/attempts")["items"][-1]
        assert (running["ended_at"], running["resumed_from_step"]) == (None, snapshot_of(drained))
        ranks = api.get(f"{api.path('drained')}/ranks")["items"]
        assert [(rank["state"], rank["pid"]) for rank in ranks] == [("running", old_keeper.pid)] * 2
        stack = api.post(f"{api.path('drained')}/ranks/1/stack")
        assert "tiny.py" in stack["stack"]
        (drained / "finish").touch()
        await_state(api, "drained", "succeeded")
        old_keeper.wait(10)
        assert api.get(f"{api.path('drained')}/attempts")["items"][-1]["outcome"]["class"] == "success"
    assert len(old_home.records(drained, "keeper_started")) == 2, "no second keeper was started"


@pytest.mark.parametrize(("action", "state"), [("cancel", "cancelled"), ("drain", "queued")])
def test_an_old_keeper_obeys_the_new_server(
    server: ServeProcess,
    api: RestApi,
    drained: Path,
    old_keeper: "subprocess.Popen[bytes]",
    action: str,
    state: str,
) -> None:
    with server:
        await_state(api, "drained", "running")
        api.post(f"{api.path('drained')}/{action}")
        await_state(api, "drained", state, 30)
        assert old_keeper.wait(10) == 0
        assert old_home.records(drained, "job_ended")[-1]["reason"] == f"{state} by the old keeper"


@pytest.mark.soak
def test_a_new_keeper_takes_over_when_an_old_one_is_lost(
    server: ServeProcess, api: RestApi, drained: Path, old_keeper: "subprocess.Popen[bytes]"
) -> None:
    step = snapshot_of(drained)
    with server:
        await_state(api, "drained", "running")
        old_keeper.send_signal(signal.SIGKILL)
        old_keeper.wait()
        await_state(api, "drained", "succeeded")
        attempts = api.get(f"{api.path('drained')}/attempts")["items"]
        assert [one["outcome"]["class"] for one in attempts] == ["preempted", "keeper_lost", "success"]
        assert attempts[-1]["resumed_from_step"] == step


@pytest.mark.soak
def test_a_keeper_alone_carries_on_from_an_old_run_directory(old: Path, drained: Path) -> None:
    """The new keeper understands ``spec.json``, ``intent.json`` and a journal of version 0.1."""
    step = snapshot_of(drained)
    intent = {"want": "run", "run": 2, "devices": ["cpu:0"], "max_failures": 3, "snapshot": None}
    for name, ranks in (("drained", 2), ("never started", 1)):
        run = old_home.run_directory(old, name)
        (run / "intent.json").write_text(json.dumps({**intent, "devices": ["cpu:0", "cpu:1"][:ranks]}) + "\n")
        environment = {**os.environ, "REKINDLE_RUN_DIR": str(run)}
        command = [sys.executable, "-P", "-m", "rekindle.keeper", str(run)]
        done = subprocess.run(
            command, cwd=run / "code", env=environment, capture_output=True, timeout=_LONG, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
        assert old_home.records(run, "job_ended")[-1]["state"] == "succeeded", done.stderr.decode()
    assert old_home.records(drained, "resumed")[-1]["step"] == step
