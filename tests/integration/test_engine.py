"""The reconciler with keepers that are fakes: jobs from the queue to their end, faults, and servers that are killed."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.waiting import until
from fakes.launching import fake_launchers, launch_fake
from job_examples import an_experiment, cpu_machine, open_store, queued_job
from rekindle.contract.files import atomic_write, write_json
from rekindle.contract.locks import lock_holder
from rekindle.contract.run_dir.snapshot_dir import MANIFEST, MODEL, Manifest, SnapshotDir, SnapshotFile, rank_file
from rekindle.contract.states import HOLDING_SLOTS, TERMINAL, JobIntent, JobState
from rekindle_service.config.home import Home
from rekindle_service.config.settings import Quota
from rekindle_service.jobs import actions
from rekindle_service.jobs.quotas import Quotas
from rekindle_service.scheduler.displacer import DisplacementRules
from rekindle_service.scheduler.reconciler import Reconciler


class Bench:
    """A home with an engine whose keepers are fakes."""

    def __init__(self, root: Path, slots: int = 2, quotas: Quotas | None = None) -> None:
        self.home = Home(root)
        self.home.create()
        self.store = open_store(root)
        self.slots, self.quotas = slots, quotas or Quotas()
        self.keepers = []
        self.engine = self.new_engine()
        self.started = self.closing = False

    def new_engine(self):
        machine = cpu_machine(self.slots)
        launchers = fake_launchers(self.store, self.home, machine, self.launch)
        return Reconciler(self.store, self.home, machine, launchers, displacement=DisplacementRules(quotas=self.quotas))

    def start(self):
        self.engine.start()
        self.started = True

    def replace_engine(self):
        """The next server begins."""
        self.engine.close()
        self.engine = self.new_engine()

    def launch(self, job):
        if job.name == "no interpreter" or self.closing:
            raise FileNotFoundError(2, "No such file", "/no/such/python")
        self.keepers.append(launch_fake(self.home)(job))
        return self.keepers[-1]

    def submit(self, part="succeed", **columns):
        job = queued_job(self.store, self.home, args=[part], **columns)
        self.engine.wake()
        return job

    def job(self, job):
        return self.store.job(job.id)

    def reach(self, job, state):
        def there():
            if not self.started:
                self.engine.reconcile()
            row = self.job(job)
            return row if row.state is state else None

        try:
            return until(there, f"{job.id} is {state}", 60)
        except AssertionError as error:
            log = self.home.run_dir(job.id).keeper_log
            error.add_note(f"{self.job(job)!r}\n{log.read_text() if log.exists() else 'no keeper.log'}")
            raise

    def keeper(self, job):
        return until(lambda: lock_holder(self.home.run_dir(job.id).keeper_lock), "it has a keeper", 60)

    def states(self, job):
        """The states of the job since it was queued."""
        return [event.to_state for event in self.store.events(job.id) if event.kind == "state"]

    def holding(self):
        """The names of the jobs that hold slots after another iteration."""
        self.engine.reconcile()
        return [job.name for job in self.store.holding()]

    def close(self):
        self.closing = True  # else the engine starts another keeper for one that is killed
        for keeper in self.keepers:
            keeper.kill()
            keeper.wait()
        self.engine.close()
        self.store.close()


@pytest.fixture
def still(tmp_path):
    """A bench whose engine makes an iteration only when the test asks for one."""
    bench = Bench(tmp_path / "home")
    yield bench
    bench.close()


@pytest.fixture
def bench(still):
    """A bench whose engine runs."""
    still.start()
    return still


@pytest.fixture
def shared(tmp_path):
    """Such a bench of four slots, of which ann may hold two."""
    bench = Bench(tmp_path / "home", 4, Quotas({"ann": Quota(slots=2, queued=None)}))
    yield bench
    bench.close()


def test_a_job_runs_from_the_queue_to_its_end(bench):
    job = bench.reach(bench.submit(max_ranks=2), JobState.SUCCEEDED)
    assert bench.states(job) == ["starting", "running", "succeeded"]
    assert (job.progress, job.step, job.world_size, job.attempt, job.restarts) == (1.0, 100, 2, 1, 0)
    assert (job.devices, job.outcome["class"], job.phase, job.run) == ([], "success", None, 1)
    assert job.created_at < job.started_at <= job.ended_at
    assert 0 <= job.goodput <= 1


@pytest.mark.parametrize(("part", "outcome"), [("fail-once", "signal"), ("once-lost", "keeper_lost")])
def test_an_attempt_that_fails_or_loses_its_keeper_is_followed_by_another(bench, part, outcome):
    job = bench.reach(bench.submit(part), JobState.SUCCEEDED)
    assert bench.states(job) == ["starting", "running", "recovering", "running", "succeeded"]
    assert [attempt.outcome.klass for attempt in bench.store.attempts(job.id)] == [outcome, "success"]
    if part == "fail-once":
        assert (job.attempt, job.restarts, bench.store.attempts(job.id)[0].reason) == (2, 1, "first failure")


def test_a_job_that_fails_for_good_gives_its_slots_back(bench):
    failed, next_one = bench.submit("fail", min_ranks=2, max_ranks=2), bench.submit(min_ranks=2, max_ranks=2)
    assert bench.reach(failed, JobState.FAILED).outcome["class"] == "signal"
    bench.reach(next_one, JobState.SUCCEEDED)


def test_progress_of_a_running_job_reaches_its_row(bench):
    job = bench.reach(bench.submit("wait"), JobState.RUNNING)
    job = until(lambda: row if (row := bench.job(job)).step == 10 else None, "a step is recorded")
    assert (job.steps, job.progress, job.phase, job.eta_seconds) == (100, 0.1, "train", 45.0)


def test_a_running_job_is_cancelled_through_its_keeper_and_can_be_resumed(bench):
    job = bench.reach(bench.submit("wait"), JobState.RUNNING)
    actions.cancel(bench.store, job.id)
    assert bench.reach(job, JobState.CANCELLED).outcome["class"] == "cancelled"
    actions.resume(bench.store, job.id)
    again = bench.reach(job, JobState.RUNNING)
    assert (again.run, again.attempt, again.ended_at, again.outcome) == (2, 2, None, None)


def test_queued_jobs_are_cancelled_without_an_attempt_and_thousands_of_them_delay_no_other(still, monkeypatch):
    monkeypatch.setattr("rekindle_service.scheduler.queue_scheduler._AT_ONCE", 2)
    many = [still.submit() for _ in range(3)]
    other = still.submit("wait")
    actions.cancel_all(still.store, [job.id for job in many])
    still.engine.reconcile()
    states = [still.job(job).state for job in many]
    assert sorted(states) == [JobState.CANCELLED, JobState.CANCELLED, JobState.QUEUED]
    assert still.job(other).state is JobState.STARTING
    still.engine.reconcile()
    assert len(still.keepers) == 1, "it has been launched before the rest was cancelled"
    assert {(row.outcome["class"], row.attempt) for row in map(still.job, many)} == {("cancelled", 0)}


def test_a_drained_job_that_is_cancelled_in_the_queue_gives_its_shared_memory_back(still):
    job = still.submit(intent=JobIntent.HOLD, run=1)
    memory = still.home.run_dir(job.id).memory
    memory.joinpath("7").mkdir(parents=True)
    still.engine.reconcile()
    assert memory.exists()
    actions.cancel(still.store, job.id)
    still.engine.reconcile()
    assert still.job(job).state is JobState.CANCELLED
    assert not memory.exists()


def test_a_drained_job_waits_in_the_queue_until_it_is_resumed(bench):
    job = bench.reach(bench.submit("wait"), JobState.RUNNING)
    actions.drain(bench.store, job.id)
    held = bench.reach(job, JobState.QUEUED)
    assert (held.intent, held.devices, held.ended_at) == (JobIntent.HOLD, [], None)
    bench.reach(bench.submit(), JobState.SUCCEEDED)  # the queue has been served, and passed the held job over
    assert bench.job(job).state is JobState.QUEUED
    actions.resume(bench.store, job.id)
    again = bench.reach(job, JobState.RUNNING)
    assert (again.run, again.restarts) == (2, 0)
    actions.cancel(bench.store, job.id)
    bench.reach(job, JobState.CANCELLED)


def test_a_resumed_job_waits_until_there_is_space_for_its_next_checkpoint(still):
    job, other = still.submit(attempt=1), still.submit()
    snapshot = SnapshotDir(still.home.run_dir(job.id).snapshots).path(4)
    snapshot.mkdir(parents=True)

    def declare(size):
        files = {MODEL: SnapshotFile(size, "x"), rank_file(0): SnapshotFile(1, "x")}
        atomic_write(snapshot / MANIFEST, Manifest(job.id, 4, None, 1, 1.0, "1-ab", "2", files).encoded())

    declare(shutil.disk_usage(still.home.root).total)
    still.engine.reconcile()
    assert (still.job(job).state, still.job(other).state) == (JobState.QUEUED, JobState.STARTING)
    pattern = r"disk space: \d+ MB free, at least \d+ MB are needed \(\d+ MB for its next checkpoint\)"
    assert re.fullmatch(pattern, still.job(job).waiting_for)
    declare(1)
    still.submit()  # the queue has changed
    still.engine.reconcile()
    assert still.job(job).state is JobState.STARTING


def test_no_job_starts_while_the_disk_is_below_the_watermark(still, monkeypatch):
    monkeypatch.setattr("rekindle_service.config.home.MIN_FREE_BYTES", 1 << 60)
    job = still.submit()
    still.engine.reconcile()
    waiting = still.job(job)
    assert waiting.state is JobState.QUEUED
    assert re.fullmatch(r"disk space: \d+ MB free, at least 1099511627776 MB are needed", waiting.waiting_for)
    monkeypatch.setattr("rekindle_service.config.home.MIN_FREE_BYTES", 1)
    still.engine.reconcile()
    assert still.job(job).state is JobState.STARTING


def test_a_new_failure_budget_reaches_the_live_keeper(bench):
    job = bench.reach(bench.submit("wait"), JobState.RUNNING)
    bench.store.patch_job(job.id, max_failures=77)
    intent = bench.home.run_dir(job.id).intent
    until(lambda: json.loads(intent.read_text())["max_failures"] == 77, "the intent is written again")
    assert json.loads(intent.read_text())["want"] == JobIntent.RUN


def test_a_job_whose_keeper_writes_no_journal_fails_with_the_log_of_the_keeper(bench):
    job = bench.submit("silent")
    memory = bench.home.run_dir(job.id).memory
    memory.joinpath("7").mkdir(parents=True)
    job = bench.reach(job, JobState.FAILED)
    assert (job.outcome["class"], job.devices) == ("launch_error", [])
    assert job.outcome["evidence"]["keeper_log"].count("nothing to say") == 3
    until(lambda: not memory.exists(), "its shared memory is freed")


def test_a_keeper_that_cannot_be_started_fails_its_job_alone(bench):
    broken, sound = bench.submit(name="no interpreter"), bench.submit()
    bench.reach(sound, JobState.SUCCEEDED)
    assert bench.reach(broken, JobState.FAILED).outcome["class"] == "launch_error"


@pytest.mark.parametrize("damage", ["fifo", "directory", "garbage"])
def test_a_damaged_run_directory_harms_no_other_job(bench, damage):
    job = bench.reach(bench.submit("wait"), JobState.RUNNING)
    run_dir = bench.home.run_dir(job.id)
    run_dir.journal.unlink()
    match damage:
        case "fifo":
            os.mkfifo(run_dir.journal)
        case "directory":
            run_dir.journal.mkdir()
        case "garbage":
            run_dir.journal.write_bytes(os.urandom(100_000) + b"\n" + b'{"type": "job_ended", "at": 1}\n' * 10)
    bench.reach(bench.submit(), JobState.SUCCEEDED)
    assert bench.engine.health().alive


def test_a_job_whose_directory_is_gone_releases_its_slots(bench):
    job = bench.reach(bench.submit("wait", min_ranks=2, max_ranks=2), JobState.RUNNING)
    bench.home.run_dir(job.id).root.rename(bench.home.root / "elsewhere")
    assert bench.reach(job, JobState.FAILED).outcome["class"] == "launch_error"
    assert "cannot process this job" in bench.job(job).notice
    bench.reach(bench.submit(), JobState.SUCCEEDED)


def test_a_deleted_job_leaves_no_directory(bench):
    job = bench.reach(bench.submit(), JobState.SUCCEEDED)
    assert bench.store.delete_job(job.id)
    until(lambda: not list(bench.home.runs.iterdir()), "its directory is removed")


def test_a_new_engine_adopts_the_keeper_of_the_last_one(bench):
    job = bench.reach(bench.submit("wait"), JobState.RUNNING)
    keeper = bench.keeper(job)
    bench.replace_engine()
    bench.start()
    bench.reach(bench.submit(), JobState.SUCCEEDED)  # after a few iterations
    assert bench.keeper(job) == keeper
    assert bench.states(job) == ["starting", "running"]
    actions.cancel(bench.store, job.id)
    bench.reach(job, JobState.CANCELLED)


def test_what_a_keeper_did_while_no_server_was_there_is_caught_up(bench):
    job = bench.reach(bench.submit("wait"), JobState.RUNNING)
    bench.engine.close()
    intent = bench.home.run_dir(job.id).intent
    write_json(intent, {**json.loads(intent.read_text()), "want": "cancel"})
    until(lambda: lock_holder(bench.home.run_dir(job.id).keeper_lock) is None, "the keeper has ended", 60)
    bench.replace_engine()
    bench.start()
    bench.reach(job, JobState.CANCELLED)


def test_slots_given_away_just_before_a_crash_are_used_after_it(still):
    job = still.submit()
    still.engine.reconcile()
    assert still.job(job).state is JobState.STARTING
    assert not still.home.run_dir(job.id).intent.exists()
    still.replace_engine()
    still.start()
    still.reach(job, JobState.SUCCEEDED)


def test_a_keeper_launched_twice_by_mistake_runs_once(still):
    """A server killed between launch and lock leaves a keeper that the next server cannot see yet."""
    job = still.submit("wait")
    still.engine.reconcile()
    still.engine.reconcile()
    still.replace_engine()
    still.engine.reconcile()  # the first keeper is still loading: another one is launched
    still.start()
    still.reach(job, JobState.RUNNING)
    actions.cancel(still.store, job.id)
    still.reach(job, JobState.CANCELLED)
    starts = [line for line in still.home.run_dir(job.id).journal.read_text().splitlines() if "keeper_started" in line]
    assert len(starts) == 1


def test_twelve_jobs_on_two_slots_run_in_order_through_a_server_killed_again_and_again(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    store = open_store(home.root)
    parts = ["succeed", "fail-once", "succeed", "once-lost"]
    jobs = [
        queued_job(store, home, args=[parts[i % 4]], priority=i % 3, min_ranks=1 + (i % 5 == 0), max_ranks=2)
        for i in range(12)
    ]
    script = Path(__file__).parent.parent / "fakes" / "engine_server.py"
    deaths = 0
    while any(store.job(job.id).state not in TERMINAL for job in jobs):
        with subprocess.Popen([sys.executable, str(script), str(home.root), "2"], stdout=subprocess.PIPE) as server:
            assert server.stdout.readline() == b"ready\n"
            over = len([job for job in jobs if store.job(job.id).state in TERMINAL])
            until(
                lambda over=over: len([j for j in jobs if store.job(j.id).state in TERMINAL]) >= min(12, over + 3),
                "three more jobs have ended",
                60,
            )
            server.kill()
        deaths += 1
    assert deaths >= 3
    assert {store.job(job.id).state for job in jobs} == {JobState.SUCCEEDED}
    assert not (home.root / "slots" / "violation").exists()
    events = sorted((event for job in jobs for event in store.events(job.id)), key=lambda event: event.id)
    starts = [event.job_id for event in events if event.to_state == JobState.STARTING]
    assert starts == [job.id for job in sorted(jobs, key=lambda job: (-job.priority, job.number))]
    _assert_never_more_than_two_at_once(store, events)
    store.close()


def _assert_never_more_than_two_at_once(store, events):
    holding = {}
    for event in events:
        if event.to_state in HOLDING_SLOTS:
            holding[event.job_id] = (
                len(event.reason.split(",")) if event.reason.startswith("allocated ") else holding[event.job_id]
            )
        else:
            holding.pop(event.job_id, None)
        assert sum(holding.values()) <= 2


def test_starting_and_closing_an_engine_leaves_nothing_behind(bench):
    def open_files():
        return len(list(Path("/proc/self/fd").iterdir()))

    bench.reach(bench.submit(), JobState.SUCCEEDED)
    before = open_files()
    for _ in range(50):
        bench.replace_engine()
        bench.start()
    assert open_files() <= before + 1


def test_quotas_limits_holds_and_dependencies_let_others_pass_and_take_effect_at_once(shared):
    first = shared.submit("wait", name="first", owner="ann")
    shared.submit("wait", name="second", owner="ann")
    third = shared.submit("wait", name="third", owner="ann")
    held = shared.submit("wait", name="held", intent=JobIntent.HOLD, owner="bob")
    after = shared.submit("succeed", name="after", owner="bob", after_any=[first.id])
    never = shared.submit("succeed", name="never", owner="bob", after=[first.id])
    assert shared.holding() == ["first", "second"]
    reasons = {job.name: job.waiting_for for job in shared.store.queue.jobs()}
    assert reasons == {
        "third": "its owner ann holds 2 of 2 slots",
        "held": "on hold",
        "after": f"{first.name} (#{first.number}) to end",
        "never": f"{first.name} (#{first.number}) to succeed",
    }
    actions.cancel(shared.store, first.id)
    shared.reach(first, JobState.CANCELLED)
    shared.reach(after, JobState.SUCCEEDED)
    shared.engine.reconcile()
    assert shared.job(third).state in HOLDING_SLOTS
    assert "which was cancelled" in shared.job(never).waiting_for
    actions.resume(shared.store, held.id)
    shared.engine.reconcile()
    assert shared.job(held).state in HOLDING_SLOTS


def test_an_experiment_holds_as_many_slots_at_once_as_it_may_also_after_a_restart_of_the_server(shared):
    shared.store.experiments.add(an_experiment("e" * 10), [])
    jobs = [shared.submit("wait", name=f"job {n}", experiment_id="e" * 10, parallel=2, owner="bob") for n in range(4)]
    assert shared.holding() == ["job 0", "job 1"]
    shared.replace_engine()
    shared.engine.recover()
    assert shared.holding() == ["job 0", "job 1"]
    actions.cancel(shared.store, jobs[0].id)
    shared.reach(jobs[0], JobState.CANCELLED)
    assert shared.holding() == ["job 1", "job 2"]


def test_what_an_owner_has_used_decides_who_is_next_also_after_a_restart_of_the_server(shared):
    shared.store.queue.set_usage({"bob": 1e9, "cem": 50.0}, 2e9)
    blocker = shared.submit("wait", name="blocker", owner="cem", min_ranks=4, max_ranks=4)
    assert shared.holding() == ["blocker"]
    for owner in ("bob", "dee"):
        shared.submit("wait", name=f"of {owner}", owner=owner, min_ranks=4, max_ranks=4)
    shared.engine.reconcile()
    positions = {job.name: job.queue_position for job in shared.store.queue.jobs()}
    assert positions == {"of bob": 2, "of dee": 1}
    shared.replace_engine()
    actions.cancel(shared.store, blocker.id)
    shared.reach(blocker, JobState.CANCELLED)
    assert shared.holding() == ["of dee"]
    used = shared.store.queue.usage()
    assert used["bob"].slot_seconds > used["cem"].slot_seconds > 50.0
