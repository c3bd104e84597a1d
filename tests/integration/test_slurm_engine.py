"""Jobs on Slurm as the reconciler sees them; the test plays what squeue reports and what keepers write."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from e2e.waiting import until
from fakes.fake_slurm import FakeJob, FakeSlurm
from fakes.launching import fake_launchers, slurm_launcher
from job_examples import cpu_machine, open_store, queued_job
from rekindle.contract.files import read_json, write_json
from rekindle.contract.job import JobSpec, RunIntent
from rekindle.contract.job_options import SlurmOptions
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.run_dir.rank_records import RankState, RankStatus
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.config.home import Home
from rekindle_service.jobs import actions
from rekindle_service.launch import launcher
from rekindle_service.launch.slurm import coordinator_reports
from rekindle_service.launch.slurm import slurm_launcher as slurm_launcher_module
from rekindle_service.launch.slurm.poller import SlurmPoller
from rekindle_service.launch.slurm.slurm_commands import SlurmCommands
from rekindle_service.launch.slurm.slurm_launcher import SlurmLauncher
from rekindle_service.scheduler.reconciler import Reconciler
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

_SILENCE = 0.3  # seconds after which a keeper counts as lost


class StillPoller(SlurmPoller):
    """Without a thread: ``poll`` is called by the test."""

    def _start(self) -> None:
        pass


@dataclass
class Play:
    """A server on a played cluster."""

    home: Home
    store: Store
    slurm: FakeSlurm = field(default_factory=FakeSlurm)
    poller_type: type[SlurmPoller] = StillPoller

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Another server takes over; the one before was killed."""
        self.poller = self.poller_type(SlurmCommands(self.slurm), 0.05)
        slurm = slurm_launcher(self.store, self.home, SlurmCommands(self.slurm), self.poller)
        launchers = fake_launchers(self.store, self.home, cpu_machine(1), slurm=slurm)
        self.engine = Reconciler(self.store, self.home, cpu_machine(1), launchers, host_timeout=60.0)

    def round(self, times: int = 1) -> None:
        for _ in range(times):
            self.engine.reconcile()
            self.poller.poll()
            self.engine.reconcile()

    def rounds_until(self, condition: Callable[[], object], sentence: str) -> None:
        until(lambda: self.round() or bool(condition()), sentence)

    def submit(self, **columns: object) -> Job:
        return queued_job(
            self.store, self.home, slurm=SlurmOptions(), nodes=2, min_nodes=2, max_ranks=2, min_ranks=2, **columns
        )

    def row(self, job: Job) -> Job:
        return self.store.job(job.id)

    def intent(self, job: Job) -> RunIntent:
        return RunIntent.from_json(read_json(self.home.run_dir(job.id).intent))

    def running(self) -> tuple[Job, FakeJob]:
        """A job whose keeper runs."""
        job = self.submit()
        self.round(2)
        mine = self.slurm.of(job.id)
        self.slurm.begin(mine)
        self.keeper(job, 1).lead()
        self.round()
        assert self.row(job).state is JobState.RUNNING
        return job, mine

    def keeper(self, job: Job, launch: int) -> "PlayedKeeper":
        return PlayedKeeper(self.home, job, launch)


@dataclass
class PlayedKeeper:
    """Writes what a coordinating keeper does."""

    home: Home
    job: Job
    launch: int

    def __post_init__(self) -> None:
        self.run_dir = self.home.run_dir(self.job.id)
        self.files = self.run_dir.launch(self.launch)
        self.journal = Journal(self.run_dir.journal)

    def lead(self, beat: int = 1) -> None:
        """Write everything up to the point where all ranks run."""
        self.beat(beat)
        write_json(self.files.leader, {"restart": 0})
        self.journal.write(RecordType.KEEPER_STARTED, run=1, keeper={"pid": 1, "start_time": 1, "boot_id": "x"})
        number = self.launch
        self.journal.write(RecordType.ATTEMPT_STARTED, attempt=number, run=1, world_size=2, devices=[])
        self.journal.write(RecordType.RANKS_RUNNING, attempt=number, ranks=[])

    def beat(self, number: int, **report: object) -> None:
        write_json(self.files.beat, {"beat": number, "restart": 0, **report})

    def end(self, state: str) -> None:
        outcome = Outcome(OutcomeClass.SUCCESS, "Every rank was done.").to_json()
        self.journal.write(RecordType.JOB_ENDED, run=1, state=state, reason=f"{state}!", outcome=outcome)


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    monkeypatch.setattr(launcher, "_delay", lambda _: 0)
    monkeypatch.setattr(coordinator_reports, "_READ_INTERVAL", 0.0)
    home = Home(tmp_path / "home")
    home.create()
    store = open_store(home.root)
    played = Play(home, store)
    yield played
    played.engine.close()
    store.close()


def short_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SlurmLauncher, "_limit", property(lambda _: _SILENCE))


def test_a_job_is_submitted_to_slurm_and_shows_why_it_waits_there(play: Play) -> None:
    job = play.submit()
    play.round(2)
    row, mine = play.row(job), play.slurm.of(job.id)
    assert (row.state, row.devices, row.waiting_for) == (
        JobState.STARTING, [], f"Slurm job {mine.id} waits: jobs of higher priority come first"
    )  # fmt: skip
    assert row.slurm == {"job_id": mine.id, "state": "PENDING", "reason": row.waiting_for, "hosts": [],
                         "stopped": False, "excluded": {}}  # fmt: skip
    assert mine.options["nodes"] == "2"
    intent, run_dir = play.intent(job), play.home.run_dir(job.id)
    assert (intent.launch, intent.devices, intent.host_timeout) == (1, [], 60.0)
    environment = run_dir.launch(1).environment
    variables = json.loads(environment.read_text())
    assert "CUDA_VISIBLE_DEVICES" not in variables
    assert variables["REKINDLE_RUN_DIR"] == str(run_dir.root)
    assert environment.stat().st_mode & 0o077 == 0


def test_a_job_runs_to_its_end_on_one_slurm_job_though_another_server_takes_over(play: Play) -> None:
    job, mine = play.running()
    play.restart()
    play.round(2)
    assert (play.row(job).state, play.row(job).launch_number) == (JobState.RUNNING, 1)
    assert (play.row(job).waiting_for, play.row(job).slurm["hosts"]) == (None, ["n1", "n2"])
    play.keeper(job, 1).end("succeeded")
    mine.state = "COMPLETED"
    play.round(2)
    assert play.row(job).state is JobState.SUCCEEDED
    assert len(play.slurm.jobs) == 1


def test_the_thread_of_the_poller_submits_and_follows_a_job(play: Play) -> None:
    play.engine.close()
    play.poller_type = SlurmPoller
    play.restart()
    job = play.submit()
    until(lambda: play.engine.reconcile() or play.slurm.jobs, "Slurm has the job")
    play.slurm.begin(play.slurm.of(job.id))
    play.keeper(job, 1).lead()
    until(lambda: play.engine.reconcile() or play.row(job).state is JobState.RUNNING, "it runs")


def test_a_poller_that_slurm_has_answered_before_polls_again_once_that_is_wanted(tmp_path: Path) -> None:
    slurm = FakeSlurm()
    poller = SlurmPoller(SlurmCommands(slurm), 0.01)
    poller.start_now(1)  # a request, after which nobody waits for another answer
    until(lambda: poller.listing.asked_at > 0, "Slurm has answered")
    asked_at = poller.listing.asked_at
    poller.want(True)
    until(lambda: poller.listing.asked_at > asked_at, "Slurm is asked again", 5)
    poller.close()


def test_a_keeper_that_has_ended_without_the_job_is_followed_by_the_next_launch(play: Play) -> None:
    job, mine = play.running()
    mine.state = "TIMEOUT"
    play.round(2)
    row = play.row(job)
    assert (row.state, row.launch_number) == (JobState.RECOVERING, 2)
    assert f"Slurm job {mine.id} has ended: its time limit in Slurm was reached" in [
        event.reason for event in play.store.events(job.id)
    ]
    second = play.slurm.of(f"{job.id}-2")
    play.slurm.begin(second)
    play.keeper(job, 2).lead()
    play.round()
    assert (play.row(job).state, play.intent(job).launch) == (JobState.RUNNING, 2)


def test_a_silent_keeper_is_cancelled_and_replaced(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    job, mine = play.running()
    short_silence(monkeypatch)
    play.rounds_until(lambda: mine.state == "CANCELLED", "its Slurm job is cancelled")
    play.round()
    assert play.row(job).state is JobState.RECOVERING
    assert play.slurm.of(job.id).name.endswith("-2")


def test_a_keeper_with_a_heartbeat_is_not_replaced(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    job, mine = play.running()
    short_silence(monkeypatch)
    deadline, number = time.monotonic() + 3 * _SILENCE, 2
    while time.monotonic() < deadline:
        play.keeper(job, 1).beat(number)
        play.round()
        number += 1
    assert (mine.state, play.row(job).state) == ("RUNNING", JobState.RUNNING)


def test_a_suspended_keeper_does_not_count_as_silent(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    job, mine = play.running()
    mine.state, shown = "SUSPENDED", f"Slurm job {mine.id} does not run: Slurm has suspended it"
    play.rounds_until(lambda: play.row(job).waiting_for == shown, "it is known to be suspended")
    short_silence(monkeypatch)
    deadline = time.monotonic() + 2 * _SILENCE
    while time.monotonic() < deadline:
        play.round()
    row = play.row(job)
    assert (row.state, row.waiting_for, len(play.slurm.jobs)) == (JobState.RUNNING, shown, 1)


def test_a_job_that_slurm_queues_again_starts_at_once_and_keeps_its_launch(play: Play) -> None:
    job, mine = play.running()
    mine.state, mine.reason = "PENDING", "BeginTime"
    play.round(2)
    row = play.row(job)
    assert (row.state, row.launch_number, set(play.slurm.started)) == (JobState.RECOVERING, 1, {mine.id})
    play.slurm.begin(mine)
    play.keeper(job, 1).beat(2)
    play.keeper(job, 1).journal.write(RecordType.RANKS_RUNNING, attempt=1, ranks=[])
    play.round()
    assert play.row(job).state is JobState.RUNNING


def test_a_wait_that_a_person_has_requested_is_not_ended(play: Play) -> None:
    job = play.submit()
    play.round(2)
    play.slurm.of(job.id).reason = "BeginTime"
    play.round(2)
    assert play.slurm.started == []


def test_a_job_that_a_person_cancels_in_slurm_is_held(play: Play) -> None:
    job, mine = play.running()
    mine.state = "CANCELLED"
    play.round(2)
    row = play.row(job)
    assert (row.state, row.intent, len(play.slurm.jobs)) == (JobState.QUEUED, JobIntent.HOLD, 1)
    assert row.notice == f"Slurm job {mine.id} was cancelled in Slurm: resume the job to let it continue"
    actions.resume(play.store, job.id)
    play.round(2)
    assert (play.row(job).state, play.slurm.of(job.id).name) == (JobState.STARTING, f"rekindle-{job.id}-2")


def test_a_job_that_completes_for_long_in_slurm_before_it_is_shown_as_cancelled_is_held(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm_launcher_module, "_COMPLETING_SILENCE", 0.0)
    job, mine = play.running()
    outcome = Outcome(OutcomeClass.PREEMPTED, "Saved and stopped because the job's keeper got SIGTERM.").to_json()
    play.keeper(job, 1).journal.write(RecordType.ATTEMPT_ENDED, attempt=1, outcome=outcome)
    mine.state = "COMPLETING"
    play.round(3)
    assert len(play.slurm.jobs) == 1
    mine.state = "CANCELLED"
    play.round(2)
    row = play.row(job)
    assert (row.state, row.intent, len(play.slurm.jobs)) == (JobState.QUEUED, JobIntent.HOLD, 1)


def test_a_job_that_slurm_is_ending_is_not_shown_with_a_speed(play: Play) -> None:
    job, mine = play.running()
    status = RankStatus(0, 0, 2, "n1", 1, 1, "cpu", RankState.RUNNING, step=25, steps=100, steps_per_second=5.0)
    rank = play.home.run_dir(job.id).attempt(1).rank(0)
    rank.root.mkdir(parents=True)
    write_json(rank.status, status.to_json())
    play.rounds_until(lambda: play.row(job).steps_per_second == 5.0, "the speed is shown")
    mine.state = "COMPLETING"
    play.rounds_until(lambda: play.row(job).steps_per_second is None, "no speed is shown any more")
    row = play.row(job)
    assert (row.state, row.step, row.eta_seconds) == (JobState.RUNNING, 25, None)
    assert row.slurm["reason"] == f"Slurm is ending job {mine.id}: it stops what still runs on its nodes"


@pytest.mark.parametrize(
    ("action", "state", "intent"),
    [
        (actions.cancel, JobState.CANCELLED, JobIntent.CANCEL),
        (actions.drain, JobState.QUEUED, JobIntent.HOLD),
    ],
)
def test_a_job_that_waits_in_slurm_stops_at_once(
    play: Play, action: object, state: JobState, intent: JobIntent
) -> None:
    job = play.submit()
    play.round(2)
    action(play.store, job.id)
    play.round(3)
    row = play.row(job)
    assert (row.state, row.intent, play.slurm.of(job.id).state) == (state, intent, "CANCELLED")
    play.round(2)
    assert len(play.slurm.jobs) == 1


def test_a_running_job_is_asked_to_stop_and_not_cancelled_in_slurm(play: Play) -> None:
    job, mine = play.running()
    actions.cancel(play.store, job.id)
    play.round(2)
    assert (play.intent(job).intent, mine.state) == (JobIntent.CANCEL, "RUNNING")
    play.keeper(job, 1).end("cancelled")
    mine.state = "COMPLETED"
    play.round()
    assert play.row(job).state is JobState.CANCELLED


def test_while_the_controller_is_down_the_state_is_unknown_and_nothing_is_done(play: Play) -> None:
    job, mine = play.running()
    waiting = play.submit()
    play.slurm.down = True
    play.round(3)
    record, other = play.row(job).slurm, play.row(waiting)
    assert (play.row(job).state, record["state"], record["job_id"]) == (JobState.RUNNING, "UNKNOWN", mine.id)
    assert "Unable to contact slurm controller" in record["reason"]
    assert other.state is JobState.STARTING
    assert "has not answered since" in other.waiting_for
    play.slurm.down = False
    play.round(3)
    assert (play.row(job).slurm["state"], play.slurm.of(waiting.id).state) == ("RUNNING", "PENDING")
    assert len(play.slurm.jobs) == 2


def test_a_cancellation_that_slurm_has_not_answered_is_repeated(play: Play) -> None:
    _, mine = play.running()
    play.poller.cancel(mine.id)
    play.slurm.down = True
    play.poller.poll()
    play.slurm.down = False
    assert mine.state == "RUNNING"
    play.poller.poll()  # Slurm answers again
    play.poller.poll()
    assert mine.state == "CANCELLED"


def test_a_job_that_slurm_has_forgotten_is_known_by_its_files(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    job, mine = play.running()
    play.slurm.forget(mine)
    play.round(2)
    assert (play.row(job).state, len(play.slurm.jobs)) == (JobState.RUNNING, 0)
    play.keeper(job, 1).end("succeeded")
    play.round()
    assert play.row(job).state is JobState.SUCCEEDED
    other, mine = play.running()
    play.slurm.forget(mine)
    short_silence(monkeypatch)
    play.rounds_until(lambda: play.slurm.jobs, "it is submitted again")
    assert play.slurm.of(other.id).name == f"rekindle-{other.id}-2"


def test_a_new_server_finds_the_slurm_job_whose_id_was_not_recorded(play: Play) -> None:
    job = play.submit()
    play.engine.reconcile()  # starting
    play.engine.reconcile()  # about to be submitted
    play.poller._requests[0]()  # the server dies here
    assert (play.row(job).launch_number, play.row(job).slurm["job_id"], len(play.slurm.jobs)) == (1, None, 1)
    play.restart()
    play.round(3)
    assert (play.row(job).launch_number, play.row(job).slurm["job_id"], len(play.slurm.jobs)) == (1, 1, 1)


def test_a_new_server_submits_what_never_reached_slurm_under_another_number(play: Play) -> None:
    job = play.submit()
    play.engine.reconcile()
    play.engine.reconcile()
    play.restart()
    play.round(3)
    assert [each.name for each in play.slurm.jobs.values()] == [f"rekindle-{job.id}-2"]


def test_an_answer_of_sbatch_that_was_lost_makes_no_second_job(play: Play) -> None:
    play.slurm.loses_answer = True
    job = play.submit()
    play.round()
    play.slurm.loses_answer = False
    play.round(3)
    assert [each.name for each in play.slurm.jobs.values()] == [f"rekindle-{job.id}-1"]
    assert play.row(job).slurm["job_id"] == 1


def test_a_refused_job_fails_with_slurms_own_sentence(play: Play) -> None:
    play.slurm.refusal = "sbatch: error: Batch job submission failed: Invalid qos specification\n"
    job = play.submit()
    play.round(3)
    row = play.row(job)
    assert (row.state, row.outcome["class"]) == (JobState.FAILED, OutcomeClass.LAUNCH_ERROR)
    assert row.outcome["message"] == "Slurm refuses the job: Invalid qos specification"


def test_a_limit_on_submitted_jobs_is_waited_for(play: Play) -> None:
    play.slurm.refusal = (
        "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: "
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)\n"
    )
    job = play.submit()
    play.round(4)
    row = play.row(job)
    assert row.state is JobState.STARTING
    assert "QOSMaxSubmitJobPerUserLimit" in row.waiting_for
    play.slurm.refusal = None
    play.round(4)
    assert [each.name for each in play.slurm.jobs.values()] == [f"rekindle-{job.id}-1"]


def test_a_job_that_leaves_nothing_on_its_nodes_fails_with_advice(play: Play) -> None:
    job = play.submit()
    for number in range(1, 4):
        play.round(2)
        mine = play.slurm.of(f"{job.id}-{number}")
        mine.state, mine.reason = "FAILED", "JobLaunchFailure"
    play.round(3)
    assert "its nodes may not see this directory: rekindle doctor --slurm" in play.row(job).outcome["message"]
    assert len(play.slurm.jobs) == 3


NO_NODES = "sbatch: error: Batch job submission failed: Requested node configuration is not available\n"


def test_a_node_that_cannot_run_the_job_is_excluded_and_only_without_any_other_the_job_fails(play: Play) -> None:
    job = play.submit()
    play.round(2)
    first = play.slurm.of(job.id)
    first.nodes, first.state = "n[1-2]", "FAILED"
    log = play.home.run_dir(job.id).launch(1).slurm_log
    log.write_text("rekindle: node n1: there is no Python at /opt/py\n")
    play.round(2)
    second = play.slurm.of(f"{job.id}-2")
    assert "exclude" not in first.options
    assert second.options["exclude"] == "n1"
    play.slurm.begin(second, "n[2-3]")
    second.state, second.comment = "FAILED", "rekindle: n2: it cannot write /home: Read-only file system"
    play.round(2)
    third = play.slurm.of(f"{job.id}-3")
    assert third.options["exclude"] == "n1,n2"
    play.slurm.begin(third, "n[3-4]")
    keeper = play.keeper(job, 3)
    keeper.lead()
    keeper.beat(2, missing={"n3": "no torch", "n4": "cut off"}, excluded={"n3": "no torch"})
    play.round()
    assert play.row(job).slurm["reason"] == "The job uses 0 of its 2 nodes (n3: no torch; n4: cut off)."
    assert play.intent(job).excluded["n2"] == "it cannot write /home: Read-only file system"
    keeper.beat(3, excluded={"n3": "no torch", "n4": "it does not see /home"})
    play.slurm.refusal = NO_NODES
    third.state = "FAILED"
    play.restart()
    play.round(4)
    outcome, (attempt,) = play.row(job).outcome, play.store.attempts(job.id)
    assert attempt.ended_at is not None, "it does not run for ever"
    assert attempt.outcome.klass is OutcomeClass.KEEPER_LOST
    assert outcome["class"] == "launch_error"
    assert outcome["message"] == (
        "Fewer than 2 usable nodes are left: n1: there is no Python at /opt/py; "
        "n2: it cannot write /home: Read-only file system; n3: no torch; n4: it does not see /home"
    )


def test_no_node_is_to_blame_for_a_slurm_job_that_was_cancelled(play: Play) -> None:
    job, mine = play.running()
    mine.state = "CANCELLED"
    play.poller.poll()
    play.keeper(job, 1).beat(2, excluded={"n1": "srun: error: the job is being cancelled"})
    play.round(3)
    assert play.row(job).slurm["excluded"] == {}
    assert "was cancelled in Slurm" in play.row(job).notice


def test_what_another_job_has_found_is_avoided_but_no_reason_to_fail(play: Play) -> None:
    job, _ = play.running()
    play.keeper(job, 1).beat(2, missing={"n2": "no torch"}, excluded={"n2": "no torch"})
    play.round()
    other = play.submit()
    play.round(2)
    assert play.slurm.of(other.id).options["exclude"] == "n2"
    play.keeper(job, 1).beat(3)
    play.round(2)
    assert play.slurm.updated[-1] == [f"JobId={play.slurm.of(other.id).id}", "ExcNodeList="], "it is well again"
    assert play.row(job).slurm["excluded"] == {}
    play.keeper(job, 1).beat(4, missing={"n2": "no torch"}, excluded={"n2": "no torch"})
    play.round()
    play.slurm.refusal, play.slurm.refused = NO_NODES, "--exclude="
    third = play.submit()
    play.round(4)
    assert "exclude" not in play.slurm.of(third.id).options


def test_times_of_a_coordinator_whose_clock_is_ahead_are_those_of_this_machine(play: Play) -> None:
    job = play.submit()
    play.round(2)
    mine = play.slurm.of(job.id)
    play.slurm.begin(mine)
    keeper = play.keeper(job, 1)
    keeper.beat(1, at=time.time() + 3600)
    keeper.journal.write(RecordType.ATTEMPT_STARTED, at=time.time() + 3600, attempt=1, run=1, world_size=2, devices=[],
                         launch=1)  # fmt: skip
    keeper.journal.write(RecordType.RANKS_RUNNING, at=time.time() + 3600, attempt=1, ranks=[], launch=1)
    play.round(2)
    (attempt,) = play.store.attempts(job.id)
    assert abs(attempt.started_at - time.time()) < 60
    assert play.row(job).slurm["reason"].startswith("The clock of n1 is 3600 s ahead")


def test_fifty_jobs_cost_one_call_per_poll(play: Play) -> None:
    for _ in range(50):
        play.submit()
    play.round(2)
    assert len(play.slurm.jobs) == 50
    before = play.slurm.calls.copy()
    play.round(3)
    assert play.slurm.calls - before == {"squeue": 3}


def test_a_held_job_and_one_that_waits_for_another_are_not_submitted_to_slurm(play: Play) -> None:
    first = play.submit()
    play.submit(after=[first.id])
    held = play.submit(intent=JobIntent.HOLD)
    play.round(3)
    assert len(play.slurm.jobs) == 1
    actions.resume(play.store, held.id)
    play.round(3)
    assert len(play.slurm.jobs) == 2


def test_slurm_gets_the_memory_and_gpus_that_a_job_asks_for_on_each_node(play: Play) -> None:
    asked = SlurmOptions(mem="2G", gpus_per_node="a100:4", prologue=["module load cuda"], extra=["--nice=5"])
    job = queued_job(play.store, play.home, slurm=asked, device="cuda")
    play.round(2)
    options = play.slurm.of(job.id).options
    assert {name: options[name] for name in ("mem", "gpus-per-node", "nice")} == {
        "mem": "2G", "gpus-per-node": "a100:4", "nice": "5",
    }  # fmt: skip
    assert "prologue" not in options
    assert JobSpec.from_json(read_json(play.home.run_dir(job.id).spec)).slurm == asked


def test_without_the_commands_of_slurm_a_job_waits_in_the_queue(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.create()
    store = open_store(home.root)
    engine = Reconciler(store, home, cpu_machine(1), fake_launchers(store, home, cpu_machine(1)))
    job = queued_job(store, home, slurm=SlurmOptions(), nodes=2, min_nodes=2, max_ranks=2, min_ranks=2)
    engine.reconcile()
    row = store.job(job.id)
    assert (row.state, "commands this server does not find" in row.waiting_for) == (JobState.QUEUED, True)
    engine.close()
    store.close()
