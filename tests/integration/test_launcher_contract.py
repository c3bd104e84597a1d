"""What the core relies on of every launcher. One more launcher needs a ``Site`` here, and passes these tests."""

import os
import signal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from e2e.waiting import until
from fakes.fake_slurm import FakeSlurm
from fakes.launching import FakeInterpreters, launch_fake, slurm_launcher
from job_examples import a_submission, cpu_machine, open_store, queued_job
from rekindle.contract.files import read_json, write_json
from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import LaunchMode, SlurmOptions
from rekindle.contract.locks import lock_holder
from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.launch import launcher as launcher_module
from rekindle_service.launch.launcher import Launcher
from rekindle_service.launch.local.local_launcher import LocalLauncher
from rekindle_service.launch.registry import LAUNCHERS, launcher_of
from rekindle_service.launch.slurm.poller import SlurmPoller
from rekindle_service.launch.slurm.slurm_commands import SlurmCommands
from rekindle_service.launch.slurm.slurm_launcher import SlurmLauncher
from rekindle_service.store import Store
from rekindle_service.store.tables import Job


class Site(ABC):
    """Where one launcher starts keepers."""

    kind: ClassVar[type[Launcher]]
    options: ClassVar[Mapping[str, Any]]
    """Fields of the spec of a job that this launcher claims."""
    bad_options: ClassVar[Mapping[str, Any]]
    """Fields of the spec of a job that it claims and refuses."""

    def __init__(self, store: Store, home: Home) -> None:
        self.store, self.home = store, home
        self.launcher = self.make()

    @abstractmethod
    def make(self) -> Launcher:
        """Make the launcher of another server for the same home."""

    @abstractmethod
    def settle(self) -> None:
        """Let happen what the launcher has requested."""

    @abstractmethod
    def kill_keeper(self, job: Job) -> None:
        """End the keeper of the job without its launcher."""

    def job(self, part: str) -> Job:
        """A job that has left the queue, with a fake keeper that plays ``part``."""
        job = queued_job(self.store, self.home, args=[part], **self.options)
        columns = {"run": 1, "devices": ["cpu:0"] if self.kind.takes_slots else []}
        moved = self.store.transition(job.id, JobState.STARTING, expected={JobState.QUEUED}, reason="test", **columns)
        assert moved is not None
        return moved

    def row(self, job: Job) -> Job:
        row = self.store.job(job.id)
        assert row is not None
        return row

    def launch(self, job: Job) -> None:
        self.observe()
        self.launcher.launch(self.row(job), self.write_intent)

    def observe(self) -> None:
        self.launcher.observe(self.store.holding())
        self.settle()

    def write_intent(self, job: Job) -> None:
        intent = {"want": "run", "run": job.run, "devices": job.devices, "launch": job.launch_number}
        write_json(self.home.run_dir(job.id).intent, intent)

    def is_alive(self, job: Job) -> bool | None:
        self.observe()
        return self.launcher.alive(self.row(job))


class LocalSite(Site):
    kind = LocalLauncher
    options: ClassVar[Mapping[str, Any]] = {}
    bad_options: ClassVar[Mapping[str, Any]] = {"max_ranks": 3, "min_ranks": 3}

    def make(self) -> Launcher:
        return LocalLauncher(self.home, cpu_machine(2), launch_fake(self.home), FakeInterpreters())

    def settle(self) -> None:
        pass

    def kill_keeper(self, job: Job) -> None:
        lock = self.home.run_dir(job.id).keeper_lock
        until(lambda: lock_holder(lock) is not None, "the keeper has its lock")
        os.kill(lock_holder(lock) or 0, signal.SIGKILL)


class SlurmSite(Site):
    kind = SlurmLauncher
    options: ClassVar[Mapping[str, Any]] = {"slurm": SlurmOptions()}
    bad_options: ClassVar[Mapping[str, Any]] = {"slurm": SlurmOptions(extra=["--array=1-2"])}

    def __init__(self, store: Store, home: Home) -> None:
        self.slurm = FakeSlurm()
        super().__init__(store, home)

    def make(self) -> Launcher:
        self.poller = StillPoller(SlurmCommands(self.slurm), 0.05)
        return slurm_launcher(self.store, self.home, SlurmCommands(self.slurm), self.poller)

    def settle(self) -> None:
        self.poller.poll()
        for job in self.slurm.jobs.values():
            if "silent" in (self.home.run_dir(job.name.split("-")[1]).spec).read_text() and job.state == "PENDING":
                job.state = "FAILED"

    def kill_keeper(self, job: Job) -> None:
        self.slurm.of(job.id).state = "FAILED"


class StillPoller(SlurmPoller):
    """Without a thread: ``poll`` is called by the test."""

    def _start(self) -> None:
        pass


SITES = [LocalSite, SlurmSite]


@pytest.fixture(params=SITES, ids=lambda site: site.kind.name)
def site(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(launcher_module, "_delay", lambda _: 0)
    home = Home(tmp_path / "home")
    home.create()
    store = open_store(home.root)
    made: Site = request.param(store, home)
    yield made
    for job in store.holding():
        made.launcher.stop(job)
        until(lambda job=job: made.is_alive(job) is False, "the keeper has ended")
    made.launcher.detach()
    store.close()


def test_every_launcher_has_a_site_here_and_a_name_of_its_own() -> None:
    assert {site.kind for site in SITES} == set(LAUNCHERS)
    assert len({each.name for each in LAUNCHERS}) == len(LAUNCHERS)


def test_its_jobs_are_its_own_for_good(site: Site) -> None:
    spec = a_submission(Path("/code"), **site.options).spec
    assert launcher_of(spec) is site.kind
    assert launcher_of(JobSpec.from_json(spec.to_json())) is site.kind


def test_a_placed_job_leaves_nothing_open_and_keeps_its_launcher(site: Site, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    asked = a_submission(tmp_path, device="auto", launch=LaunchMode.AUTO, **site.options)
    spec = site.launcher.place(site.launcher.fill_in(asked)).spec
    assert (spec.device, spec.launch, launcher_of(spec)) == ("cpu", LaunchMode.TORCHRUN, site.kind)
    assert site.launcher.validate(spec) == []
    assert site.launcher.obstacle() is None


def test_what_it_cannot_run_is_refused_by_field_and_rule(site: Site) -> None:
    asked = a_submission(Path("/code"), device="cpu", **{**site.options, **site.bad_options})
    (error,) = site.launcher.validate(site.launcher.place(asked).spec)
    assert error.field
    assert error.rule
    assert error.value


def test_a_keeper_is_launched_after_its_intent_and_is_found_by_the_next_server(site: Site) -> None:
    job = site.job("wait")
    assert site.is_alive(job) is False
    assert site.launcher.crash_looping(site.row(job)) is False
    written: list[int] = []
    site.launcher.launch(site.row(job), lambda row: [written.append(row.run), site.write_intent(row)])
    assert written == [1]
    assert site.is_alive(job) is True
    until(lambda: site.is_alive(job), "the keeper is alive")
    run_dir = site.home.run_dir(job.id)
    if not site.kind.is_remote:
        until(lambda: lock_holder(run_dir.keeper_lock) is not None, "the keeper has its lock")
    site.launcher.detach()
    site.launcher = site.make()
    assert site.is_alive(job) is True
    assert read_json(run_dir.intent)["launch"] == site.row(job).launch_number


def test_what_it_reports_are_columns_of_the_row(site: Site) -> None:
    job = site.job("wait")
    site.launch(job)
    site.observe()
    report = site.launcher.report(site.row(job))
    assert report.withdrawn is None
    assert set(report.columns or ()) <= set(Job.model_fields)
    assert site.store.update_progress(job.id, **(report.columns or {})) is not None
    assert abs(site.launcher.seconds_ahead(site.row(job))) < 1


def test_a_stopped_keeper_ends_and_may_be_stopped_again(site: Site) -> None:
    job = site.job("wait")
    site.launcher.stop(site.row(job))
    site.launch(job)
    until(lambda: site.is_alive(job), "the keeper is alive")
    for _ in range(2):
        site.launcher.stop(site.row(job))
        until(lambda: site.is_alive(job) is False, "the keeper has ended")


def test_a_lost_keeper_is_noticed_and_replaced(site: Site) -> None:
    job = site.job("wait")
    site.launch(job)
    until(lambda: site.is_alive(job), "the keeper is alive")
    site.kill_keeper(job)
    until(lambda: site.is_alive(job) is False, "the keeper has ended")
    assert site.launcher.crash_looping(site.row(job)) is False
    assert site.launcher.why_lost(site.row(job))
    site.launch(job)
    assert site.is_alive(job) is True


def test_a_job_whose_keeper_never_starts_is_given_up_with_the_reason(site: Site) -> None:
    job = site.job("silent")
    for _ in range(20):
        if site.launcher.crash_looping(site.row(job)):
            break
        site.launch(job)
        until(lambda: site.is_alive(job) is False, "the keeper has ended")
    else:
        pytest.fail("it is launched for ever")
    sentence, tail = site.launcher.failure(site.row(job))
    assert sentence
    assert isinstance(tail, str)


def test_the_end_of_a_keeper_here_is_reported_at_once(site: Site) -> None:
    if site.kind.is_remote:
        pytest.skip("it is seen when the other machine is asked")
    ended: list[bool] = []
    site.launcher.on_end = lambda: ended.append(True)
    job = site.job("wait")
    site.launch(job)
    site.kill_keeper(job)
    until(lambda: ended, "its end is reported")
