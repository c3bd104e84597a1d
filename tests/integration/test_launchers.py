"""What every launcher promises the reconciler: this machine's, with keepers that are processes, and Slurm's, played."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.waiting import until
from fakes.fake_slurm import FakeSlurm
from job_examples import open_store, queued_job
from rekindle.contract.job import SlurmOptions
from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.launchers import launch_counts
from rekindle_service.launchers.keeper_pool import KeeperPool
from rekindle_service.launchers.launcher import Launcher
from rekindle_service.launchers.slurm import beats
from rekindle_service.launchers.slurm.commands import SlurmCommands
from rekindle_service.launchers.slurm.launch_files import LaunchFiles
from rekindle_service.launchers.slurm.launcher import SlurmLauncher
from rekindle_service.launchers.slurm.poller import SlurmPoller
from rekindle_service.launchers.slurm.queue_listing import job_name
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

KEEPER = """
import sys, time, pathlib
from rekindle.contract.locks import ExclusiveLock
lock = ExclusiveLock(pathlib.Path(sys.argv[1]) / "keeper.lock")
time.sleep(600)
"""


class Stage:
    """One launcher with a job; what happens outside of it is ``end`` and ``restart``."""

    launcher: Launcher

    def __init__(self, home: Home, store: Store) -> None:
        self.home, self.store = home, store
        queued = queued_job(store, home, **self.options())
        started = store.transition(queued.id, JobState.STARTING, expected={JobState.QUEUED}, reason="", run=1)
        assert started is not None
        self.job_id = started.id
        self.restart()

    def options(self) -> dict[str, object]:
        return {}

    @property
    def job(self) -> Job:
        found = self.store.job(self.job_id)
        assert found is not None
        return found

    def restart(self) -> None:
        """Another server."""

    def settle(self) -> None:
        """Whatever the launcher does by itself has happened."""

    def started(self) -> int:
        """How many keepers were started."""
        raise NotImplementedError

    def end(self) -> None:
        """The keeper dies."""
        raise NotImplementedError


class LocalStage(Stage):
    processes: "list[subprocess.Popen[bytes]] | None" = None

    def restart(self) -> None:
        self.processes = self.processes or []
        processes = self.processes

        def start(job: Job) -> "subprocess.Popen[bytes]":
            run_dir = self.home.run_dir(job.id)
            processes.append(subprocess.Popen([sys.executable, "-c", KEEPER, str(run_dir.root)]))
            until(run_dir.keeper_lock.exists, "the keeper is there")
            return processes[-1]

        self.launcher = KeeperPool(self.home, start)

    def started(self) -> int:
        return len(self.processes or [])

    def end(self) -> None:
        for process in self.processes or []:
            process.kill()
            process.wait()


class SlurmStage(Stage):
    slurm: FakeSlurm | None = None

    def options(self) -> dict[str, object]:
        return {"slurm": SlurmOptions()}

    def restart(self) -> None:
        self.slurm = self.slurm or FakeSlurm()
        self.poller = SlurmPoller(SlurmCommands(self.slurm), 0.05)
        files = LaunchFiles(self.home, self.home.root / "worker")
        self.launcher = SlurmLauncher(
            self.home, self.poller, files, self.store.update_progress, lambda _: None, host_timeout=60.0
        )

    def settle(self) -> None:
        self.launcher.observe([self.job])
        name = job_name(self.job.id, self.job.launch_number)
        until(lambda: not self.poller.submitting(name), "Slurm has the job")
        until(lambda: self.launcher.alive(self.job) is not None, "Slurm has answered")

    def started(self) -> int:
        return 0 if self.slurm is None else len(self.slurm.jobs)

    def end(self) -> None:
        assert self.slurm is not None
        for job in self.slurm.jobs.values():
            job.state = "FAILED"


@pytest.fixture(params=[LocalStage, SlurmStage])
def stage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    monkeypatch.setattr(launch_counts, "_delay", lambda _: 0)
    monkeypatch.setattr(beats, "_READ_INTERVAL", 0.0)
    home = Home(tmp_path / "home")
    home.create()
    store = open_store(home.root)
    kind: Callable[[Home, Store], Stage] = request.param
    made = kind(home, store)
    yield made
    made.end()
    made.launcher.detach()
    store.close()


def test_a_job_that_was_never_launched_has_no_keeper(stage: Stage) -> None:
    stage.settle()
    assert stage.launcher.alive(stage.job) is False
    assert stage.launcher.crash_looping(stage.job) is False


def test_a_launched_job_has_one_keeper(stage: Stage) -> None:
    stage.settle()
    stage.launcher.launch(stage.job)
    stage.settle()
    assert stage.launcher.alive(stage.job) is True
    assert stage.started() == 1
    assert stage.launcher.report(stage.job).withdrawn is None


def test_another_server_finds_the_keeper(stage: Stage) -> None:
    stage.settle()
    stage.launcher.launch(stage.job)
    stage.settle()
    stage.launcher.detach()
    stage.restart()
    stage.settle()
    assert stage.launcher.alive(stage.job) is True
    assert stage.started() == 1


def test_a_keeper_that_has_died_is_missed_and_can_be_launched_again(stage: Stage) -> None:
    stage.settle()
    stage.launcher.launch(stage.job)
    stage.settle()
    stage.end()
    until(lambda: stage.launcher.alive(stage.job) is False, "it is missed")
    assert stage.launcher.crash_looping(stage.job) is False
    stage.launcher.launch(stage.job)
    stage.settle()
    until(lambda: stage.launcher.alive(stage.job) is True, "the next one runs")
    assert stage.started() == 2


def test_a_keeper_that_ends_at_once_again_and_again_is_given_up_with_a_reason(stage: Stage) -> None:
    stage.settle()
    for _ in range(10):
        with suppress(OSError):
            if stage.launcher.crash_looping(stage.job):
                break
            stage.launcher.launch(stage.job)
        stage.settle()
        stage.end()
        until(lambda: stage.launcher.alive(stage.job) is False, "it has ended")
    assert stage.started() == 3
    assert stage.launcher.failure(stage.job)[0]


def test_a_keeper_can_be_stopped_and_stopping_none_is_harmless(stage: Stage) -> None:
    stage.settle()
    stage.launcher.stop(stage.job)
    stage.launcher.launch(stage.job)
    stage.settle()
    until(lambda: stage.launcher.alive(stage.job) is True, "it runs")
    stage.launcher.stop(stage.job)
    stage.launcher.stop(stage.job)
    until(lambda: stage.launcher.alive(stage.job) is False, "it has ended")
    assert stage.launcher.report(stage.job).withdrawn is None
