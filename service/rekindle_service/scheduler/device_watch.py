"""Keeps what is known of devices up to date: who uses them, and which have failed."""

import time
from collections.abc import Callable, Iterable

import structlog

from rekindle.contract.locks import lock_holder
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.attempt_history import AttemptSummary
from rekindle_service.config.home import Home
from rekindle_service.jobs.device_states import DeviceStates
from rekindle_service.launch.registry import takes_slots
from rekindle_service.machine.gpu_report import (
    STARTING,
    GpuProbe,
    GpuReport,
    GpuState,
    foreign_users,
    in_use_reason,
    lacks_memory,
    lasting_faults,
    xid_faults,
)
from rekindle_service.machine.health import DeviceUser, describe_user
from rekindle_service.machine.slots import Machine, Slot, count_on_bus
from rekindle_service.periodic_thread import PeriodicThread
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

MAX_KILLS = 3
"""In a row on one device, of at least two jobs, after which the device counts as the cause, not the scripts."""

_SIGNALS = {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"}  # nobody outside sends them
_MAX_JOBS = 1000  # of which the last attempt is known
_HEALTHY = {OutcomeClass.SUCCESS, OutcomeClass.PREEMPTED}
_log = structlog.get_logger(__name__)

_INTERVAL = 1.0  # seconds
_SEARCH_INTERVAL = 30.0  # seconds, and twice as many each time, while the driver knows fewer GPUs than the machine has
_MAX_SEARCH_INTERVAL = 3600.0
_EVENTS = 500  # read at once
_ATTEMPT_ENDED = ("recovering", "succeeded", "failed", "cancelled", "queued")
"""States that follow the end of an attempt."""


class RepeatedKills:
    """Add attempts in the order in which they ended; one that was added before is ignored.

    Only the rank that failed counts, and neither a fault that was injected nor a job that fails on other devices, too:
    there the script is the cause. Trials of one experiment count as one job, and so do jobs of one owner with one name.
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}  # by job: the number of its last attempt
        self._kills: dict[str, list[str]] = {}  # by device: scripts, in the order of their deaths
        self._common: dict[str, set[str]] = {}  # by script: the devices of all its deaths

    def add(self, attempt: AttemptSummary, job: Job) -> dict[str, str]:
        """The devices that are to be disabled now, with the reason, by slot name."""
        known = self._seen.pop(job.id, 0)
        self._seen[job.id] = max(known, attempt.number)  # last in the order of the dictionary
        if attempt.number <= known:
            return {}
        for old in list(self._seen)[:-_MAX_JOBS]:
            del self._seen[old]
        outcome = attempt.outcome
        if outcome is not None and outcome.klass in _HEALTHY:
            for device in attempt.devices:
                self._kills.pop(device, None)
            return {}
        if attempt.faults or outcome is None or not _is_kill(outcome):
            return {}
        script = job.experiment_id or f"{job.owner}/{job.name}"
        devices = _devices_of(attempt, outcome.rank, job)
        self._common[script] = self._common.get(script, set(devices)) & set(devices)
        return {device: reason for device in devices if (reason := self._count(device, script))}

    def _count(self, device: str, script: str) -> str | None:
        kills = self._kills.setdefault(device, [])
        kills.append(script)
        attributed = [each for each in kills if device in self._common[each]]
        if len(attributed) < MAX_KILLS or len(set(attributed)) < 2:
            return None
        del self._kills[device]
        return f"{len(attributed)} times in a row a process died or hung on it, of {len(set(attributed))} jobs"


def _is_kill(outcome: Outcome) -> bool:
    died = outcome.klass is OutcomeClass.SIGNAL and outcome.signal in _SIGNALS
    return bool(outcome.evidence.get("hardware")) or died or outcome.klass is OutcomeClass.HANG


def _devices_of(attempt: AttemptSummary, rank: int | None, job: Job) -> list[str]:
    """The devices of the rank that failed; none where it is not known."""
    each = job.spec.devices_per_rank
    return [] if rank is None or rank < 0 else attempt.devices[rank * each : (rank + 1) * each]


class DeviceWatch:
    """A thread of its own, and none on a machine without GPUs: CPU slots are disabled by people only.

    A server may start before the driver does: while that knows fewer GPUs than are on the bus, it is asked again.
    """

    def __init__(
        self,
        store: Store,
        home: Home,
        devices: DeviceStates,
        probe: GpuProbe,
        find: Callable[[], Machine],
        on_bus: Callable[[], int] = count_on_bus,
    ) -> None:
        """``find`` asks the driver."""
        self._store, self._home, self._devices = store, home, devices
        self._find, self._on_bus = find, on_bus()
        self._search_interval = _SEARCH_INTERVAL
        self._search_at = time.monotonic() + self._search_interval
        self._probe = probe
        self._suspected: set[str] = set()  # slots that were in use by something unknown at the last check
        self._kills = RepeatedKills()
        self._last_event: int | None = None
        self._thread = PeriodicThread("devices", self.check, _INTERVAL, "The devices could not be checked")

    @property
    def _are_missing(self) -> bool:
        return self._on_bus > self._devices.machine.known_gpus

    @property
    def _gpus(self) -> list[Slot]:
        return [slot for slot in self._devices.machine.slots if slot.device == "cuda"]

    def start(self) -> None:
        """No GPU is given out before it was checked."""
        if self._are_missing:
            known = self._devices.machine.known_gpus
            _log.warning("The NVIDIA driver does not know all GPUs of this machine", known=known, on_bus=self._on_bus)
        if self._gpus or self._are_missing:
            self._devices.health.set_in_use({slot.name: STARTING for slot in self._gpus})
            self._thread.start()

    def close(self) -> None:
        self._thread.close()
        self._probe.close()

    def check(self) -> None:
        """One thread at a time. Raises StorageError."""
        if self._are_missing and time.monotonic() >= self._search_at:
            self._search()
        if not self._gpus:
            return
        report = self._probe.poll()
        if isinstance(report, str):
            self._devices.health.set_in_use({slot.name: report for slot in self._gpus})
        else:
            self._check_users(report)
            self._check_faults(report)
        self._check_kills()

    def _search(self) -> None:
        self._search_interval = min(2 * self._search_interval, _MAX_SEARCH_INTERVAL)  # others may hide some for good
        self._search_at = time.monotonic() + self._search_interval
        if new := self._devices.machine.add(self._find()):
            self._devices.health.set_in_use({slot.name: STARTING for slot in self._gpus})
            self._probe.watch([slot.uuid for slot in self._gpus if slot.uuid])
            _log.info("The NVIDIA driver knows more GPUs", devices=[slot.name for slot in new])

    def _check_users(self, report: GpuReport) -> None:
        jobs = [job for job in self._store.holding() if takes_slots(job.spec)]
        held, keepers = {name for job in jobs for name in job.devices}, self._keepers(jobs)
        reasons: dict[str, str] = {}
        users: dict[str, list[DeviceUser]] = {}
        suspected: set[str] = set()
        for slot, gpu in self._states(report):
            known, unknown = foreign_users(
                gpu, lambda pid: describe_user(pid, keepers, self._home.runs), held=slot.name in held
            )
            is_suspect = self._is_suspect(slot, gpu, unknown, held)
            if is_suspect:
                suspected.add(slot.name)
            if known or (is_suspect and slot.name in self._suspected):
                users[slot.name] = [*known, *unknown]
                reasons[slot.name] = in_use_reason(gpu, users[slot.name])
        self._suspected = suspected
        self._devices.health.set_in_use(reasons, users)

    def _is_suspect(self, slot: Slot, gpu: GpuState, unknown: list[DeviceUser], held: set[str]) -> bool:
        """Memory of a process that has just been killed is in use for a moment: only the second time counts."""
        return slot.name not in held and (bool(unknown) or lacks_memory(gpu))

    def _keepers(self, jobs: Iterable[Job]) -> set[int]:
        """Pids, of the jobs that hold GPUs."""
        names = {slot.name for slot in self._gpus}
        holding = (job for job in jobs if names.intersection(job.devices))
        pids = (lock_holder(self._home.run_dir(job.id).keeper_lock) for job in holding)
        return {pid for pid in pids if pid is not None}

    def _check_faults(self, report: GpuReport) -> None:
        self._devices.faults = {slot.name: lasting_faults(gpu) for slot, gpu in self._states(report)}
        for slot in self._gpus:
            for fault in self._devices.faults.get(slot.name, ()):
                self._put_aside(slot, fault, float("inf"))
        happened = xid_faults(report.xids, self._gpus)
        for slot in self._gpus:
            if slot.name in happened:
                self._put_aside(slot, happened[slot.name], time.time())

    def _check_kills(self) -> None:
        """Attempts that have ended since the server was started."""
        if self._last_event is None:
            self._last_event = self._store.feed.version()
        events = self._store.feed.events(self._last_event, _EVENTS)
        if not events:
            return
        self._last_event = events[-1].id
        slots = {slot.name: slot for slot in self._gpus}
        changed = {event.job_id for event in events if event.to_state in _ATTEMPT_ENDED}
        found = {job.id: job for job_id in changed if (job := self._store.job(job_id)) is not None}
        attempts = [(each, job) for job_id, job in found.items() for each in self._store.attempts(job_id)]
        ended = [(each, job) for each, job in attempts if each.ended_at is not None]
        for attempt, job in sorted(ended, key=lambda each: each[0].ended_at or 0.0):
            for name, reason in self._kills.add(attempt, job).items():
                if name in slots:
                    self._put_aside(slots[name], reason, attempt.ended_at or 0.0)

    def _put_aside(self, slot: Slot, fault: str, found_at: float) -> None:
        if slot.name in self._devices.health.failed():
            return
        if self._devices.disable_for(slot, fault, found_at):
            _log.warning("A device is disabled", device=slot.name, reason=fault)

    def _states(self, report: GpuReport) -> list[tuple[Slot, GpuState]]:
        return [(slot, report.gpus[slot.uuid]) for slot in self._gpus if slot.uuid in report.gpus]
