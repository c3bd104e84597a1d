"""Device checks on a machine with GPUs on paper: the tests play what original and replays compute."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from digest_files import DigestWriter
from fakes.launching import fake_launchers
from job_examples import a_submission, cpu_machine, gpu_machine, open_store
from job_records import record_status
from rekindle.contract.files import write_json
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.digest_records import StepDigest, StepRecord, TensorKind
from rekindle.contract.run_dir.snapshot_dir import read_pins
from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.jobs.device_check import DeviceChecker
from rekindle_service.jobs.device_states import DeviceStates
from rekindle_service.jobs.quotas import Quotas
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.machine.health import DeviceHealth
from rekindle_service.machine.slots import Machine
from rekindle_service.store import Store
from rekindle_service.store.projection import RowChanges
from rekindle_service.store.tables import Job
from snapshot_files import write_snapshot

Changed = Mapping[tuple[int, int], StepDigest]
STEP, START = 13, 10
NAN = Outcome(OutcomeClass.NAN, "rank 0: loss is nan at step 13", rank=0)


@dataclass
class Lab:
    """``bits``: by device, in which of its digests of step 13 a job differs there from the usual one."""

    root: Path
    gpus: int = 3
    bits: dict[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home = Home(self.root / "home")
        self.home.create()
        (code := self.root / "code").mkdir()
        (code / "train.py").write_text("print('hi')\n")
        self.store: Store = open_store(self.root)
        self.machine = Machine((*gpu_machine(self.gpus).slots, *cpu_machine(2).slots))
        self.devices = DeviceStates(self.store, self.machine, DeviceHealth())
        self.restart()

    def restart(self, quotas: Quotas | None = None) -> None:
        """Everything that is not in files is lost."""
        launchers = fake_launchers(self.store, self.home, self.machine)
        self.submitter = Submitter(self.store, self.home, launchers, quotas=quotas or Quotas())
        self.checker = DeviceChecker(self.store, self.home, self.devices, self.submitter)

    def job(self, job: Job) -> Job:
        found = self.store.job(job.id)
        assert found is not None
        return found

    def original(self, *devices: str, owner: str | None = None, **options: Any) -> Job:
        """A job that was submitted with ``--check-device`` and runs in step 20, with snapshots of 5 and 10."""
        spec = {"device": ",".join(devices), "min_ranks": len(devices), "max_ranks": len(devices), **options}
        submission = a_submission(self.root / "code", **{"check_device": True, **spec})
        job = self.submitter.submit(replace(submission, owner=owner))
        for step in (5, START):
            write_snapshot(self.home.run_dir(job.id).snapshots, step, world_size=len(devices))
        self.run(job, [*devices], 20)
        return self.job(job)

    def run(self, job: Job, devices: list[str], last_step: int) -> None:
        attempt = AttemptInfo(1, 1, 1.0, len(devices), devices, last_step=last_step)
        self.move(job, JobState.STARTING, run=1, devices=devices)
        self.move(job, JobState.RUNNING, attempt=1)
        row = self.job(job)
        changes = RowChanges(offset=row.journal_offset, attempts={1: attempt})
        assert self.store.apply_journal(row, changes) is not None

    def move(self, job: Job, state: JobState, **columns: Any) -> None:
        before = self.job(job).state
        assert self.store.transition(job.id, state, expected={before}, reason="test", **columns) is not None

    def end(self, job: Job, state: JobState = JobState.FAILED, outcome: Outcome = NAN, at: float = 2.0) -> None:
        self.move(job, state, outcome=outcome.to_json(), devices=[], ended_at=at)

    def suspect(self, job: Job, step: int = STEP) -> None:
        rank_dir = self.home.run_dir(job.id).attempt(1).rank(0)
        rank_dir.root.mkdir(parents=True, exist_ok=True)
        record_status(rank_dir, 0, suspect_step=step)

    def write(self, job: Job, devices: list[str], steps: list[int], index: int | None = None) -> None:
        """The digests of a job; ``index``: the tensor whose gradient is another one in step 13, on all ranks."""
        writer, changed = DigestWriter(self.home.run_dir(job.id), len(devices)), dict[tuple[int, int], StepDigest]()
        for rank in range(len(devices)) if index is not None and STEP in steps else ():
            changed |= writer.tensors(STEP, rank, TensorKind.GRADIENTS, index)
        writer.write(steps, changed)

    def replays(self, job: Job) -> list[Job]:
        check = self.job(job).device_check
        found = [] if check is None else [self.store.job(each) for each in check.get("replays", [])]
        return [each for each in found if each is not None]

    def play(self, replay: Job, state: JobState = JobState.SUCCEEDED, index: int | None = None) -> None:
        """Compute the steps of a replay."""
        devices = replay.spec.device.split(",")
        last = replay.spec.last_step or 0
        self.run(replay, devices, last)
        wrong = index if index is not None else self.bits.get(devices[0])
        self.write(replay, devices, [*range((replay.spec.continue_step or 0) + 1, last + 1)], wrong)
        layers = self.home.run_dir(replay.id).attempt(1).rank(0).layers
        write_json(layers, StepRecord(STEP, [3, 1, 4, 1, 5, 9, 2, 6, 5], []).to_json())
        self.end(replay, state, at=3.0)

    def finish(self, job: Job) -> str:
        """Play the check to its end, with a new server before each step; returns the notice."""
        for _ in range(12):
            self.restart()
            self.checker.check()
            if self.job(job).device_check is None:
                break
            for replay in self.replays(job):
                if replay.state is JobState.QUEUED:
                    self.play(replay)
        row = self.job(job)
        assert row.device_check is None
        assert [each.reason for each in self.store.events(job.id) if each.kind == "device_check"] == (
            [row.notice] if row.notice else []
        )
        return row.notice or ""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.store.close()


def test_a_device_that_alone_computes_other_bits_is_disabled_with_the_evidence(lab: Lab) -> None:
    job = lab.original("cuda:0", owner="anna", priority=7)
    lab.write(job, ["cuda:0"], [STEP], 0)
    lab.suspect(job)
    lab.end(job)
    lab.bits["cuda:0"] = 0
    notice = lab.finish(job)
    assert notice.startswith(f"Device check of step {STEP}: other bits on cuda:0 than on cuda:1 and cuda:2, ")
    assert "as in the original" in notice
    assert "First difference: step 13, gradients of fc.weight; equal up to step 12." in notice
    assert notice.endswith(" cuda:0 is disabled.")
    (reason,) = lab.devices.health.failed().values()
    numbers = [job.number + each for each in (1, 2, 3, 4)]
    assert reason == (
        f"computes other bits than cuda:1 and cuda:2 in job {job.number} (replays: jobs {', '.join(map(str, numbers))})"
    )
    replays = [each for each in lab.store.lists.jobs() if each.number in numbers]
    assert sorted(each.spec.device for each in replays) == ["cuda:0", "cuda:0", "cuda:1", "cuda:2"]
    for each in replays:
        assert (each.priority, each.spec.check_device, each.spec.continue_step) == (7, False, START)
        assert (each.spec.last_step, each.spec.record_step, each.spec.digest) == (STEP, STEP, 1)
        assert (each.owner, each.name) == ("anna", f"replay of {job.name} on {each.spec.device}")


def test_the_same_bits_everywhere_speak_for_the_script_and_name_the_samples(lab: Lab) -> None:
    job = lab.original("cuda:0")
    lab.suspect(job)
    lab.end(job)
    notice = lab.finish(job)
    assert f"the same bits on cuda:0 and cuda:1 (jobs {job.number + 1} on cuda:0, " in notice
    assert "the script or its data, or a fault before step 11" in notice
    assert notice.endswith(" Samples of rank 0: 3, 1, 4, 1, 5, 9, 2, 6, ….")
    assert lab.devices.health.failed() == {}


def test_replays_are_not_copied_off_the_box_and_wait_for_no_copy(lab: Lab) -> None:
    place = lab.root / "off"
    mirror = {"mirror": str(place), "mirror_limit": 1.0, "mirror_files": ["out/*"], "require_mirror": True}
    job = lab.original("cuda:0", **mirror)
    lab.suspect(job)
    lab.end(job)
    lab.checker.check()
    lab.checker.check()
    specs = [each.spec for each in lab.replays(job)]
    assert specs
    assert [(each.mirror, each.mirror_limit, each.mirror_files, each.require_mirror) for each in specs] == [
        (None, None, [], False)
    ] * len(specs)


def test_a_fault_that_does_not_come_again_disables_nothing(lab: Lab) -> None:
    job = lab.original("cuda:0")
    lab.write(job, ["cuda:0"], [5, 10, 15], None)
    lab.suspect(job)
    lab.end(job, JobState.SUCCEEDED)
    lab.checker.check()
    lab.checker.check()
    assert lab.replays(job)[0].spec.last_step == 15, "the next step with a digest of the original"
    assert "the same bits on cuda:0 and cuda:1, as in the original (jobs" in lab.finish(job)
    again = lab.original("cuda:0")
    lab.write(again, ["cuda:0"], [STEP], 0)
    lab.suspect(again)
    lab.end(again, JobState.SUCCEEDED)
    notice = lab.finish(again)
    assert "the replays are equal and the original is not" in notice
    assert "Nothing is disabled. First difference: step 13" in notice
    assert lab.devices.health.failed() == {}


def test_replays_that_differ_on_one_device_disable_nothing(lab: Lab) -> None:
    job = lab.original("cuda:0")
    lab.suspect(job)
    lab.end(job)
    for index in range(4):
        while len(lab.replays(job)) <= index:
            lab.checker.check()
        lab.play(lab.replays(job)[index], index=index % 2 if index < 2 else 1)
        lab.checker.check()
    lab.checker.check()
    assert "the script is not deterministic" in (lab.job(job).notice or "")
    assert lab.devices.health.failed() == {}


@pytest.mark.parametrize("gpus", [1, 2])
def test_without_a_second_device_of_the_kind_nothing_is_disabled(tmp_path: Path, gpus: int) -> None:
    lab = Lab(tmp_path, gpus)
    lab.bits["cuda:0"] = 0
    job = lab.original("cuda:0")
    lab.suspect(job)
    lab.end(job)
    if gpus == 2:
        lab.devices.disable(lab.machine.slots[1], "test", "ann")
    assert "there is no other device of its kind: the cause is the device" in lab.finish(job)
    assert "cuda:0" not in lab.devices.health.failed()
    lab.store.close()


def test_cpu_slots_are_one_processor(lab: Lab) -> None:
    job = lab.original("cpu:0")
    lab.suspect(job)
    lab.end(job)
    assert "the same bits twice on cpu:0" in lab.finish(job)


def test_a_third_device_that_disagrees_with_the_second_protects_the_first(lab: Lab) -> None:
    job = lab.original("cuda:0")
    lab.suspect(job)
    lab.end(job)
    lab.bits["cuda:1"] = 0
    assert "Nothing is disabled." in lab.finish(job)
    assert lab.devices.health.failed() == {}


def test_of_several_ranks_that_differ_together_no_device_is_disabled(tmp_path: Path) -> None:
    lab = Lab(tmp_path, 6)
    job = lab.original("cuda:0", "cuda:1")
    lab.suspect(job)
    lab.end(job)
    lab.bits["cuda:0"] = 0
    notice = lab.finish(job)
    assert "other bits on cuda:0 and cuda:1 than on cuda:2 and cuda:3 and cuda:4 and cuda:5" in notice
    assert "one of cuda:0 and cuda:1: nothing is disabled" in notice
    assert lab.devices.health.failed() == {}
    lab.store.close()


def test_a_person_who_enables_the_device_after_the_replays_is_not_overruled(lab: Lab) -> None:
    job = lab.original("cuda:0")
    lab.suspect(job)
    lab.end(job)
    lab.bits["cuda:0"] = 0
    lab.devices.enable(lab.machine.slots[0], "ann")
    assert lab.finish(job).endswith(" A person has enabled cuda:0 since.")
    assert lab.devices.health.failed() == {}


@pytest.mark.parametrize("way", ["deleted", "cancelled", "failed"])
@pytest.mark.parametrize("index", [0, 1])
def test_a_replay_without_a_result_ends_the_check(lab: Lab, way: str, index: int) -> None:
    job = lab.original("cuda:0")
    lab.suspect(job)
    lab.end(job)
    while len(lab.replays(job)) < 2:
        lab.checker.check()
    replay = lab.replays(job)[index]
    if way == "failed":
        lab.run(replay, ["cuda:0"], 11)
    if way == "deleted":
        lab.play(replay)
        assert lab.store.delete_job(replay.id)
    else:
        outcome = Outcome(OutcomeClass.OOM if way == "failed" else OutcomeClass.CANCELLED, "out of memory")
        lab.end(replay, JobState(way), outcome)
    lab.checker.check()
    notice = lab.job(job).notice or ""
    assert notice.startswith(f"Device check of step {STEP}: it ends, since ")
    expected = {"deleted": "was deleted", "cancelled": "was cancelled", "failed": "has failed: out of memory"}
    assert expected[way] in notice
    assert lab.job(job).device_check is None


def test_a_replay_that_was_submitted_before_a_crash_is_not_submitted_again(lab: Lab) -> None:
    job = lab.original("cuda:0")
    lab.suspect(job)
    lab.end(job)
    lab.checker.check()
    planned = lab.job(job).device_check
    lab.checker.check()
    (first,) = lab.replays(job)
    lab.store.update_progress(job.id, device_check=planned)  # as if the server had died in between
    lab.restart()
    lab.checker.check()
    assert [each.id for each in lab.replays(job)] == [first.id]


def test_a_running_job_is_checked_at_its_end_from_the_snapshot_that_was_kept_for_it(lab: Lab) -> None:
    job = lab.original("cuda:0")
    run_dir = lab.home.run_dir(job.id)
    lab.suspect(job, 12)
    lab.checker.check()
    lab.suspect(job)
    lab.checker.check()
    lab.checker.check()
    assert (read_pins(run_dir.pins), lab.replays(job)) == ({START}, [])
    lab.end(job, JobState.SUCCEEDED)
    lab.finish(job)
    assert read_pins(run_dir.pins) == set()


def test_a_job_without_a_finding_has_no_check_and_is_watched_again_when_it_is_resumed(lab: Lab) -> None:
    job = lab.original("cuda:0")
    lab.end(job, JobState.SUCCEEDED)
    assert lab.finish(job) == ""
    lab.move(job, JobState.QUEUED, ended_at=None)
    lab.move(job, JobState.STARTING, run=2, devices=["cuda:0"])
    lab.checker.check()
    assert lab.job(job).device_check is not None


@pytest.mark.parametrize("way", ["gone", "disabled"])
def test_a_device_that_no_job_gets_is_not_checked(lab: Lab, way: str) -> None:
    job = lab.original("cuda:0")
    lab.suspect(job)
    lab.end(job)
    if way == "gone":
        lab.machine.slots = lab.machine.slots[1:]
    else:
        lab.devices.disable(lab.machine.slots[0], "Xid 79", None)
    assert lab.finish(job).endswith("cuda:0 is disabled already, or gone.")


def test_a_full_queue_delays_the_check(lab: Lab) -> None:
    job = lab.original("cuda:0")
    lab.suspect(job)
    lab.end(job)
    lab.restart(Quotas(max_queued=0))
    for _ in range(3):
        lab.checker.check()
    assert (lab.replays(job), lab.job(job).notice) == ([], None)
    assert lab.finish(job) != ""
