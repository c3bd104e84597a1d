"""A keeper that does not start fails its job, unless this machine lacks something; one that runs can be stopped."""

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from disks import fill, tmpfs
from e2e.waiting import until
from fakes.launching import FakeInterpreters, fake_launchers
from job_examples import a_job, cpu_machine, open_store, queued_job
from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.launch import launcher
from rekindle_service.launch.launcher import KeeperStarter
from rekindle_service.launch.local.local_launcher import LocalLauncher
from rekindle_service.scheduler.reconciler import Reconciler
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

_MANY = 30  # tries: more than any number of deaths after which a job fails
_KEEPER = """
import sys, time
from pathlib import Path
from rekindle.contract.locks import ExclusiveLock
lock = ExclusiveLock(Path(sys.argv[1]))
print(flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "_delay", lambda _: 0)


@pytest.fixture
def small_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A home whose runs have a disk of their own."""
    monkeypatch.setattr("rekindle_service.config.home.MIN_FREE_BYTES", 0)
    home = Home(tmp_path / "home")
    home.create()
    with tmpfs(home.runs, "256k"):
        yield home


def no_intent(_: Job) -> None:
    """The keepers here read none."""


def local_launcher(home: Home, start: KeeperStarter) -> LocalLauncher:
    return LocalLauncher(home, cpu_machine(1), start, FakeInterpreters())


def launches_until_crash_looping(keepers: LocalLauncher, job: Job) -> int:
    for tries in range(_MANY):
        with suppress(OSError):
            if keepers.crash_looping(job):
                return tries
            keepers.launch(job, no_intent)
        while keepers.alive(job):
            pass
    return _MANY


def a_starting_job(home: Home) -> Job:
    job = a_job(run=1, state=JobState.STARTING)
    home.run_dir(job.id).root.mkdir(parents=True)
    return job


@pytest.mark.parametrize(("name", "tries"), [("ENOSPC", _MANY), ("EAGAIN", _MANY), ("EMFILE", _MANY), ("ENOENT", 3)])
def test_a_launch_for_which_the_machine_lacks_something_does_not_count_as_a_failure(
    home: Path, name: str, tries: int
) -> None:
    def launch(_: Job) -> "subprocess.Popen[bytes]":
        number = getattr(errno, name)
        raise OSError(number, os.strerror(number))

    assert launches_until_crash_looping(local_launcher(Home(home), launch), a_starting_job(Home(home))) == tries


def test_a_keeper_that_dies_while_its_disk_is_full_does_not_count_as_a_failure(small_home: Home) -> None:
    job = a_starting_job(small_home)
    ours = local_launcher(small_home, lambda _: subprocess.Popen(["/bin/false"]))
    ballast = fill(small_home.runs)
    assert launches_until_crash_looping(ours, job) == _MANY
    ballast.unlink()
    assert launches_until_crash_looping(ours, job) == 3


@pytest.mark.parametrize(
    ("text", "said"), [("Traceback\nPermissionError: /venv\n\n", ": PermissionError: /venv; see "), ("", "; see ")]
)
def test_the_failure_of_a_keeper_quotes_the_last_line_of_its_log(home: Path, text: str, said: str) -> None:
    job = a_starting_job(Home(home))
    log = Home(home).run_dir(job.id).keeper_log
    log.write_text(text)
    message, tail = local_launcher(Home(home), lambda _: subprocess.Popen(["/bin/false"])).failure(job)
    assert message == f"The keeper could not start or ended at once, repeatedly{said}{log}"
    assert tail == text


@pytest.mark.parametrize("launched_by_this_server", [True, False])
def test_a_keeper_is_stopped_by_whichever_server_runs_and_stopping_none_is_harmless(
    home: Path, launched_by_this_server: bool
) -> None:
    def launch(job: Job) -> "subprocess.Popen[bytes]":
        lock = Home(home).run_dir(job.id).keeper_lock
        process = subprocess.Popen([sys.executable, "-c", _KEEPER, str(lock)], stdout=subprocess.PIPE)
        with process.stdout:
            process.stdout.readline()
        return process

    keepers, job = local_launcher(Home(home), launch), a_starting_job(Home(home))
    keepers.stop(job)
    keepers.launch(job, no_intent)
    stopping = keepers if launched_by_this_server else local_launcher(Home(home), launch)
    assert stopping.alive(job)
    stopping.stop(job)
    until(lambda: not keepers.alive(job), "it has ended")
    stopping.stop(job)


def _state_after_round(engine: Reconciler, store: Store, job: Job) -> JobState | None:
    engine.reconcile()
    return store.job_state(job.id)


def test_the_queue_outlives_a_full_disk(small_home: Home) -> None:
    store = open_store(small_home.root)
    job = queued_job(store, small_home, args=["succeed"])
    engine = Reconciler(store, small_home, cpu_machine(1), fake_launchers(store, small_home, cpu_machine(1)))
    ballast = fill(small_home.runs)
    for _ in range(_MANY):
        engine.reconcile()
    row = store.job(job.id)
    assert (row.state, row.devices) == (JobState.STARTING, ["cpu:0"])
    assert "No space left on device" in (row.notice or "")
    ballast.unlink()
    until(lambda: _state_after_round(engine, store, job) is JobState.SUCCEEDED, "the job ends")
    assert [event.to_state for event in store.events(job.id)] == ["queued", "starting", "running", "succeeded"]
    engine.close()
    store.close()
