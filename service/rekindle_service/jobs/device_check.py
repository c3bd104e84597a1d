"""Is it the device? A suspicious step is replayed on the same slots and on others, and the bits are compared.

All state is in rows: ``DeviceCheck`` in a column of the job that is checked, and the replays, which are jobs like any
other. A server that starts continues where the last one died.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import structlog

from rekindle.contract.job_options import LinkRule
from rekindle.contract.outcome import OutcomeClass
from rekindle.contract.run_dir.digest_records import StepRecord
from rekindle.contract.run_dir.json_records import JsonRecord, read_record
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.snapshot_dir import read_pins
from rekindle.contract.states import TERMINAL, JobState
from rekindle_service.config.home import Home
from rekindle_service.job_wording import STATE_PHRASES
from rekindle_service.jobs.actions import pin, unpin
from rekindle_service.jobs.device_states import DeviceStates
from rekindle_service.jobs.job_story import first_line
from rekindle_service.jobs.packaging.continuation import check_stopped
from rekindle_service.jobs.replay import Additions, Steps, replay_of, snapshot_before
from rekindle_service.jobs.step_diff import Phase, PhaseDifference, StepComparison, Verdict, compare_steps, describe
from rekindle_service.jobs.submission_record import IdempotencyKey
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.launch.registry import takes_slots
from rekindle_service.run_readers.digest_series import DigestSeries
from rekindle_service.run_readers.rank_rows import RANK_ZERO, read_rank_zero_status
from rekindle_service.store import QueueFullError, Store
from rekindle_service.store.tables import Job
from rekindle_service.submission import BusyError, SubmissionError

CHECK_INTERVAL = 1.0  # seconds
_SAMPLES = 8  # ids that a sentence lists
_RESULTS = {OutcomeClass.NAN, OutcomeClass.DIVERGENCE}  # of a replay that has failed and yet computed the step
_COMPUTED = {Phase.OPTIMIZER, Phase.PARAMETERS, Phase.BUFFERS}
_log = structlog.get_logger(__name__)


class Bits(StrEnum):
    """What the comparison of two trainings shows."""

    EQUAL = "equal"
    COMPUTED = "computed"  # other results from the same data and random numbers
    GIVEN = "given"  # the data, the random numbers or other parts of the script differ before that
    UNKNOWN = "unknown"  # nothing, or not everything, can be compared


class Finding(StrEnum):
    """What follows from all comparisons, in the words of a sentence."""

    SCRIPT = "the same bits on {same} and {others}{original} ({jobs}): the cause is {cause}."
    NO_OTHER = (
        "the same bits twice on {same}{original} ({jobs}), and there is no other device of its kind: the cause is the "
        "device, {cause}."
    )
    TRANSIENT = (
        "the replays are equal and the original is not ({jobs}): a fault that has passed, or a script that is not "
        "deterministic. Nothing is disabled. {difference}"
    )
    NOT_DETERMINISTIC = (
        "the replays differ on one device, in what they compute from, or both from the original ({jobs}): the script "
        "is not deterministic, or several devices are faulty. Nothing is disabled. {difference}"
    )
    INCOMPLETE = "the replays cannot be compared, for lack of common digests or of equal samples ({jobs})."
    ONE_OF_TWO = (
        "other bits on {same} than on {others}, each time the same{original} ({jobs}): one of both is faulty, and "
        "there is no third of its kind. Nothing is disabled. {difference}"
    )
    DEVICE = "other bits on {same} than on {others}, each time the same{original} ({jobs}). {difference}"


def decide(
    original: Bits, same: Bits | None, across: Bits | None, other: Bits | None, *, others: int
) -> Finding | None:
    """Decide by comparisons of the first replay on the same slots; None: two more replays are needed.

    ``original``: with the original, ``same``: with the second one there, ``across``: with the first one on other slots,
    ``other``: of the two on other slots, of which there are ``others`` different ones, 2 at most. A device is found
    only where each of its replays, and the original if it can be compared, has the same bits, and both on two others
    have the same other ones.
    """
    if (across if others else same) is Bits.EQUAL:
        if original not in (Bits.EQUAL, Bits.UNKNOWN):
            return Finding.TRANSIENT
        return Finding.SCRIPT if others else Finding.NO_OTHER
    needed = (across, same, other) if others else (same,)
    if Bits.UNKNOWN in needed:
        return Finding.INCOMPLETE
    if None in needed:
        return None
    is_device = needed == (Bits.COMPUTED, Bits.EQUAL, Bits.EQUAL) and original in (Bits.EQUAL, Bits.UNKNOWN)
    if not is_device:
        return Finding.NOT_DETERMINISTIC
    return Finding.DEVICE if others > 1 else Finding.ONE_OF_TWO


def bits(found: StepComparison, step: int) -> Bits:
    """Whether two trainings are the same up to ``step`` at least, or in what they differ first."""
    first, difference = _first(found), found.difference
    if found.partial or (first is not None and first.phase is Phase.ORDER):  # as after a rollback: other samples
        return Bits.UNKNOWN
    if first is not None and difference is not None:
        scheduled = any(each.phase is Phase.PARTS for each in difference.phases)  # as by another learning rate
        is_computed = first.phase is Phase.GRADIENTS or (first.phase in _COMPUTED and not scheduled)
        return Bits.COMPUTED if is_computed else Bits.GIVEN
    return Bits.EQUAL if found.verdict is Verdict.IDENTICAL and found.steps[-1] >= step else Bits.UNKNOWN


def suspects(found: StepComparison, devices: Sequence[str]) -> Sequence[str]:
    """Name the ``devices``, one of each rank, that can have computed what differs first."""
    first, difference = _first(found), found.difference
    if first is None or len(first.ranks) != 1 or difference is None or difference.world_size != len(devices):
        return devices
    return [devices[first.ranks[0]]]


def _first(found: StepComparison) -> PhaseDifference | None:
    """What differs first, without logged values, such as a speed: they may differ anyway."""
    phases = [] if found.difference is None else found.difference.phases
    return next((each for each in phases if each.phase is not Phase.FORWARD), None)


@dataclass(frozen=True, slots=True)
class DeviceCheck(JsonRecord):
    """Column ``device_check`` of a job; without ``step`` nothing suspicious has happened yet."""

    step: int | None = None
    attempt: int = 0  # that has computed it
    asked: bool = False  # by a person
    pinned: int | None = None  # step of the snapshot that is kept for the check
    planned_at: float = 0.0  # seconds since the epoch
    start: int | None = None  # step of the snapshot that the replays begin from
    until: int = 0
    slots: list[list[str]] = field(default_factory=list)  # of the replays; empty before they are planned
    replays: list[str] = field(default_factory=list)  # ids


class DeviceChecker:
    """Leads open checks to their end. One thread calls it."""

    def __init__(self, store: Store, home: Home, devices: DeviceStates, submitter: Submitter) -> None:
        self._store, self._home, self._devices, self._submitter = store, home, devices, submitter

    def check(self) -> None:
        """Advance every open check by one replay or decision. Raises StorageError."""
        for job in self._store.holding():
            if job.spec.check_device:
                self._watch(job)
        for job in self._store.device_checks():
            check = DeviceCheck.from_json(job.device_check)
            try:
                self._advance(job, check)
            except (BusyError, QueueFullError):
                continue  # until there is room
            except (SubmissionError, OSError) as error:
                self._end(job, check, f"it ends, since a replay was refused: {error}.")

    def _watch(self, job: Job) -> None:
        """Open the check of a running job that has none, and keep the snapshot before its latest suspicious step."""
        check, run_dir = DeviceCheck.from_json(job.device_check or {}), self._home.run_dir(job.id)
        status = read_rank_zero_status(run_dir, job.attempt)
        step = None if status is None or check.slots else status.suspect_step
        if step is not None and step != check.step:
            self._unpin(job, check)
            start = _start(run_dir, step)
            is_new = start is not None and start not in read_pins(run_dir.pins) and pin(run_dir, start)
            self._set(job, DeviceCheck(step, job.attempt, pinned=start if is_new else None))
        elif job.device_check is None:
            self._set(job, check)

    def _unpin(self, job: Job, check: DeviceCheck) -> None:
        if check.pinned is not None:
            unpin(self._home.run_dir(job.id), check.pinned)

    def _set(self, job: Job, check: DeviceCheck | None) -> None:
        self._store.update_progress(job.id, device_check=None if check is None else check.to_json())

    def _end(self, job: Job, check: DeviceCheck, text: str) -> None:
        self._unpin(job, check)
        self._store.end_device_check(job.id, f"Device check of step {check.step}: {text}".strip())

    def _advance(self, job: Job, check: DeviceCheck) -> None:
        if not check.slots:
            if not check_stopped(job, job.id, self._home):  # else its keeper is still about to end
                self._plan(job, check)
            return
        found = [self._store.job(each) for each in check.replays]
        replays = [each for each in found if each is not None]
        if len(replays) < len(found):
            self._end(job, check, "it ends, since a replay was deleted.")
        elif bad := next((each for each in replays if _has_no_result(each)), None):
            message = first_line(str((bad.outcome or {}).get("message") or ""))
            self._end(job, check, f"it ends, since its replay, job {bad.number}, {STATE_PHRASES[bad.state]}: {message}")
        elif len(replays) in (0, 1, 3):
            self._submit(job, check)
        elif all(each.state in TERMINAL for each in replays):
            self._judge(job, check, replays)

    def _plan(self, job: Job, check: DeviceCheck) -> None:
        """Choose step and slots, or end the check."""
        if not check.asked and (latest := self._latest_suspect(job)) is not None:
            check = replace(check, step=latest[0], attempt=latest[1])
        attempt, run_dir = self._store.attempt(job.id, check.attempt), self._home.run_dir(job.id)
        if check.step is None or attempt is None:
            self._set(job, None)
            return
        same, known = attempt.devices, {slot.name for slot in self._devices.machine.slots}
        gone = [name for name in same if name not in known or name in self._devices.health.failed()]
        if gone or not same or not takes_slots(job.spec):
            text = (
                f"{gone[0]} is disabled already, or gone." if gone else "only jobs on slots of this machine have one."
            )
            self._end(job, check, text)
            return
        digested = [each.step for each in DigestSeries(run_dir, [attempt]).steps() if each.step >= check.step]
        others = self._others(same)
        slots = [same, others[0], same, others[-1]] if others else [same, same]
        start, until = _start(run_dir, check.step), min(digested, default=check.step)
        self._set(job, replace(check, planned_at=time.time(), start=start, until=until, slots=slots))

    def _latest_suspect(self, job: Job) -> tuple[int, int] | None:
        """Step and attempt, of the latest run."""
        for attempt in reversed(self._store.attempts(job.id)):
            status = read_rank_zero_status(self._home.run_dir(job.id), attempt.number)
            if attempt.run == job.run and status is not None and status.suspect_step is not None:
                return status.suspect_step, attempt.number
        return None

    def _others(self, same: Sequence[str]) -> list[list[str]]:
        """Two groups at most of as many other GPUs of the same model, free ones first; CPU slots are one processor."""
        unusable, held = (
            self._devices.health.unusable(),
            {name for job in self._store.holding() for name in job.devices},
        )
        slots, count = sorted(self._devices.machine.slots, key=lambda slot: (slot.name in held, slot.index)), len(same)
        kinds = {(slot.device, slot.model, slot.memory) for slot in slots if slot.name in same}
        usable = [slot for slot in slots if slot.device == "cuda" and slot.name not in {*same, *unusable}]
        found = [slot.name for slot in usable if {(slot.device, slot.model, slot.memory)} == kinds]
        return [found[at : at + count] for at in (0, count) if len(found) >= at + count]

    def _submit(self, job: Job, check: DeviceCheck) -> None:
        """Submit the next replay. Raises SubmissionError, QueueFullError, BusyError and StorageError."""
        attempt, slots = self._store.attempt(job.id, check.attempt), check.slots[len(check.replays)]
        attempts, steps = [] if attempt is None else [attempt], Steps(check.step or 1, check.until)
        made = replay_of(job, self._home.run_dir(job.id), attempts, steps, ",".join(slots), Additions(record=True))
        spec = replace(
            made.spec,
            name=f"{made.spec.name[:150]} on {slots[0]}",
            priority=job.priority,
            links=LinkRule.PREFERRED,
            continue_from=None if check.start is None else job.id,
            continue_step=check.start,
        )
        key = IdempotencyKey(f"device check {job.id} {check.planned_at} {len(check.replays)}", "")
        replay = self._submitter.submit(replace(made, spec=spec, owner=job.owner), key)
        self._set(job, replace(check, replays=[*check.replays, replay.id]))

    def _judge(self, job: Job, check: DeviceCheck, replays: Sequence[Job]) -> None:
        """Compare what the replays have computed, and end the check or submit another one."""
        step, others = check.step or 0, len({*map(tuple, check.slots[1::2])} - {tuple(check.slots[0])})
        series = [DigestSeries(self._home.run_dir(each.id), self._store.attempts(each.id)) for each in replays]
        attempt = self._store.attempt(job.id, check.attempt)
        original = compare_steps(DigestSeries(self._home.run_dir(job.id), [attempt] if attempt else []), series[0])
        pairs = ((0, 1), (0, 2), (1, 3)) if others else ((0, 1),)
        found = [compare_steps(series[one], series[other]) for one, other in pairs if other < len(series)]
        known = [*(bits(each, step) for each in found), None, None]
        across, same, other = known[:3] if others else (None, known[0], None)
        of_original = bits(original, step)
        finding = decide(of_original, same, across, other, others=others)
        if finding is None:
            self._submit(job, check)
            return
        listed = (f"{each.number} on {' '.join(on)}" for each, on in zip(replays, check.slots, strict=False))
        earlier = "" if check.start is None else f", or a fault before step {check.start + 1}"
        elsewhere = " and ".join(dict.fromkeys(name for on in check.slots[1 : len(replays) : 2] for name in on))
        text = finding.format(
            same=" and ".join(check.slots[0]),
            others=elsewhere,
            original=", as in the original" if of_original is Bits.EQUAL else "",
            jobs=f"jobs {', '.join(listed)}",
            cause=f"the script or its data{earlier}",
            difference=next((describe(each) for each in (*found, original) if each.difference is not None), ""),
        )
        if finding is Finding.DEVICE:
            text += self._disable(job, suspects(found[0], check.slots[0]), elsewhere, replays)
        elif finding in (Finding.SCRIPT, Finding.NO_OTHER):
            text += self._samples(replays[0])
        self._end(job, check, text)

    def _disable(self, job: Job, found: Sequence[str], others: str, replays: Sequence[Job]) -> str:
        """Disable the device, if it is one; a sentence that says so."""
        slot = self._devices.slot(found[0])
        if slot is None or len(found) > 1:
            return f" It is one of {' and '.join(found)}: nothing is disabled."
        numbers = ", ".join(str(each.number) for each in replays)
        fault = f"computes other bits than {others} in job {job.number} (replays: jobs {numbers})"
        if self._devices.disable_for(slot, fault, max(each.ended_at or 0.0 for each in replays)):
            _log.warning("A device is disabled", device=slot.name, reason=fault)
        is_disabled = slot.name in self._devices.health.failed()
        return f" {slot.name} is disabled." if is_disabled else f" A person has enabled {slot.name} since."

    def _samples(self, replay: Job) -> str:
        run_dir = self._home.run_dir(replay.id)
        record = read_record(run_dir.attempt(replay.attempt).rank(RANK_ZERO).layers, StepRecord, run_dir.root)
        ids = [] if record is None else [*map(str, record.samples[:_SAMPLES]), *["…"][: len(record.samples) > _SAMPLES]]
        return f" Samples of rank 0: {', '.join(ids)}." if ids else ""


def _start(run_dir: RunDir, step: int) -> int | None:
    """The snapshot to begin from: where there is one, before the step before, which may have caused what was seen."""
    earlier = snapshot_before(run_dir, step - 1)
    return snapshot_before(run_dir, step) if earlier is None else earlier


def _has_no_result(replay: Job) -> bool:
    failed = replay.state is JobState.FAILED and (replay.outcome or {}).get("class") not in _RESULTS
    return failed or replay.state is JobState.CANCELLED
