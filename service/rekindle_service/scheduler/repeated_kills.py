"""Devices on which the processes of several jobs have died or hung in a row. Pure."""

from rekindle.contract.outcome import OutcomeClass
from rekindle_service.store.tables import Attempt, Job

MAX_KILLS = 3
"""In a row on one device, of at least two jobs, after which the device and not the scripts is to blame."""

_SIGNALS = {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"}  # nobody outside sends them
_MAX_JOBS = 1000  # of which the last attempt is known
_HEALTHY = {OutcomeClass.SUCCESS, OutcomeClass.PREEMPTED}


class RepeatedKills:
    """Add attempts in the order in which they ended; one that was added before is ignored.

    Only the rank that failed counts, and neither a fault that was injected nor a job that fails on other devices, too:
    there the script is to blame. Trials of one experiment count as one job, and so do jobs of one owner with one name.
    """

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}  # by job: the number of its last attempt
        self._kills: dict[str, list[str]] = {}  # by device: scripts, in the order of their deaths
        self._common: dict[str, set[str]] = {}  # by script: the devices of all its deaths

    def add(self, attempt: Attempt, job: Job) -> dict[str, str]:
        """The devices that are to be disabled now, with the reason, by slot name."""
        known = self._seen.pop(job.id, 0)
        self._seen[job.id] = max(known, attempt.number)  # last in the order of the dictionary
        if attempt.number <= known:
            return {}
        for old in list(self._seen)[:-_MAX_JOBS]:
            del self._seen[old]
        outcome = attempt.outcome or {}
        if outcome.get("class") in _HEALTHY:
            for device in attempt.devices:
                self._kills.pop(device, None)
            return {}
        if attempt.faults or not _is_kill(outcome):
            return {}
        script = job.experiment_id or f"{job.owner}/{job.name}"
        devices = _devices_of(attempt, job)
        self._common[script] = self._common.get(script, set(devices)) & set(devices)
        return {device: reason for device in devices if (reason := self._count(device, script))}

    def _count(self, device: str, script: str) -> str | None:
        kills = self._kills.setdefault(device, [])
        kills.append(script)
        blamed = [each for each in kills if device in self._common[each]]
        if len(blamed) < MAX_KILLS or len(set(blamed)) < 2:
            return None
        del self._kills[device]
        return f"{len(blamed)} times in a row a process died or hung on it, of {len(set(blamed))} jobs"


def _is_kill(outcome: dict[str, object]) -> bool:
    evidence = outcome.get("evidence")
    is_hardware = isinstance(evidence, dict) and bool(evidence.get("hardware"))
    died = outcome.get("class") == OutcomeClass.SIGNAL and outcome.get("signal") in _SIGNALS
    return is_hardware or died or outcome.get("class") == OutcomeClass.HANG


def _devices_of(attempt: Attempt, job: Job) -> list[str]:
    """Those of the rank that failed; none where it is not known."""
    rank = (attempt.outcome or {}).get("rank")
    each = job.spec.devices_per_rank
    return attempt.devices[rank * each : (rank + 1) * each] if isinstance(rank, int) and rank >= 0 else []
