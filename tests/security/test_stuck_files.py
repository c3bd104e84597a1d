"""A run directory whose file system does not answer: a real one, in user space, whose process is stopped."""

import json
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from api_server import ADMIN, api_server
from e2e.waiting import until
from fakes.launching import fake_launchers
from rekindle.contract.files import read_json
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.states import JobState
from rekindle_service.api.routes.event_routes import make_feed
from rekindle_service.jobs.scheduler_health import MAX_AGE, SchedulerHealth
from rekindle_service.scheduler.reconciler import Reconciler

_NEEDS = "needs bindfs, fusermount and /dev/fuse (apt-get install bindfs), and may mount"


@contextmanager
def _mounted(directory: Path) -> Iterator[int]:
    """``directory`` over itself through a process in user space; gives its pid. Skips where that is not allowed."""
    tool = shutil.which("bindfs")
    unmount = shutil.which("fusermount3") or shutil.which("fusermount")
    if tool is None or unmount is None or not Path("/dev/fuse").exists():
        pytest.skip(_NEEDS)
    process = subprocess.Popen([tool, "-f", str(directory), str(directory)], stderr=subprocess.DEVNULL)
    try:
        until(lambda: os.path.ismount(directory) or process.poll() is not None, "the file system to be there")
        if process.poll() is not None:
            pytest.skip(_NEEDS)
        yield process.pid
    finally:
        process.kill()  # whoever waits for a file gets an error
        process.wait()
        subprocess.run([unmount, "-uz", str(directory)], check=False, stderr=subprocess.DEVNULL)


def test_files_that_do_not_answer_hold_up_no_other_job_and_are_shown(tmp_path: Path) -> None:
    code = tmp_path / "code"
    code.mkdir()
    keepers: list[subprocess.Popen[bytes]] = []

    def launch(_: object) -> "subprocess.Popen[bytes]":
        keepers.append(subprocess.Popen(["sleep", "600"]))
        return keepers[-1]

    with api_server(tmp_path) as server:
        state = server.state
        stuck, sound = server.submit(code, name="stuck"), server.submit(code, name="sound")
        for job in (stuck, sound):
            server.move(job, JobState.STARTING, run=1, devices=["cpu:0"])
        reconciler = Reconciler(
            state.store,
            state.home,
            state.machine,
            fake_launchers(state.store, state.home, state.machine, launch),
            job_seconds=0.5,
        )
        try:
            reconciler.reconcile()
            with _mounted(server.run_dir(stuck).root) as process:
                os.kill(process, signal.SIGSTOP)
                for _ in range(3):
                    reconciler.reconcile()
                assert list(reconciler.health().stuck) == [stuck["id"]]
                object.__setattr__(state, "scheduler_health", reconciler.health)
                for route in ("ranks", "metrics", "snapshots", "logs.zip", "configuration"):
                    answer = server.api.get(f"/api/v1/jobs/{stuck['id']}/{route}")
                    assert (answer.status_code, answer.json()["type"][-18:]) == (503, "files-unresponsive")
                make_feed(state, ADMIN, job=[stuck["id"]]).poll()
                assert "have not answered" in server.api.get(f"/api/v1/jobs/{stuck['id']}").json()["notice"]
                third = server.submit(code, name="third", ranks=1)
                with server.run_dir(sound).journal.open("w") as journal:
                    ended = {"type": "job_ended", "at": 1, "run": 1, "state": "succeeded", "reason": "done"}
                    journal.write(json.dumps(ended) + "\n")
                reconciler.reconcile()
                reconciler.reconcile()
                states = {job["name"]: job["state"] for job in server.api.get("/api/v1/jobs").json()["items"]}
                assert (states["sound"], states["third"]) == ("succeeded", "starting")
                intent = read_json(RunDir(state.home.run_dir(third["id"]).root).intent)
                assert isinstance(intent, dict)
                os.kill(process, signal.SIGCONT)
                until(lambda: reconciler.reconcile() or not reconciler.health().stuck, "the files to answer")
                assert server.api.get(f"/api/v1/jobs/{stuck['id']}").json()["notice"] is None
        finally:
            reconciler.close()
            for keeper in keepers:
                keeper.kill()
                keeper.wait()


def test_a_loop_that_does_not_turn_and_files_that_do_not_answer_are_shown_and_nothing_is_accepted_for_the_loop(
    tmp_path: Path,
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").touch()
    body = {"script": "train.py", "code": {"path": str(tmp_path / "code")}}
    stuck = {"abcdefghij": 40.0}
    with api_server(tmp_path) as server:
        for health, status, check, words in (
            (SchedulerHealth(alive=True, age=0.1), 200, "scheduler", "ok"),
            (SchedulerHealth(alive=True, age=MAX_AGE + 1), 503, "scheduler", "iteration ended 31 s ago"),
            (SchedulerHealth(alive=False, age=0.1), 503, "scheduler", "thread has ended"),
            (SchedulerHealth(alive=True, age=0.1, stuck=stuck, failing=2), 200, "jobs", "abcdefghij, for 40 s"),
        ):
            object.__setattr__(server.state, "scheduler_health", lambda health=health: health)
            object.__setattr__(server.state.submitter, "scheduler_problem", lambda health=health: health.problem())
            submitted = server.api.post("/api/v1/jobs", json=body)
            assert submitted.status_code == (201 if status == 200 else 503), health
            assert (status == 200) != ("no job is accepted while the scheduler" in submitted.text), health
            answer = server.api.get("/readyz")
            assert answer.status_code == status, health
            assert words in answer.json()["checks"][check], health
            metrics = server.api.get("/metrics").text
            assert f"rekindle_scheduler_up {float(status == 200)}" in metrics, health
            assert f"rekindle_scheduler_age_seconds {health.age}" in metrics, health
            assert f"rekindle_jobs_unresponsive {float(len(health.stuck))}" in metrics, health
            assert f"rekindle_scheduler_failing {float(health.failing)}" in metrics, health


def test_the_age_of_the_loop_grows_while_the_database_does_not_answer(tmp_path: Path) -> None:
    gate = threading.Event()
    with api_server(tmp_path) as server:
        state = server.state
        reconciler = Reconciler(
            state.store,
            state.home,
            state.machine,
            fake_launchers(state.store, state.home, state.machine, lambda _: subprocess.Popen(["true"])),
        )
        holding = state.store.holding
        object.__setattr__(state.store, "holding", lambda: (gate.wait(), holding())[1])
        reconciler.start()
        try:
            first = reconciler.health().age
            until(lambda: reconciler.health().age > first + 0.5, "the age to grow")
            gate.set()
            until(lambda: reconciler.health().age < 0.5, "the loop to turn")
        finally:
            gate.set()
            reconciler.close()
