"""``intent.json``: what the server requests of the keeper of a job now."""

import time

from rekindle.contract.files import read_json, write_json
from rekindle.contract.job import RunIntent
from rekindle.contract.run_dir.control_messages import ControlMessage, MessageType, notify
from rekindle.contract.states import JobIntent
from rekindle_service.config.home import Home
from rekindle_service.launch.registry import launcher_of, takes_slots
from rekindle_service.machine.slots import Machine, cuda_visible_devices
from rekindle_service.store.mutations import is_stopping
from rekindle_service.store.tables import Job

_LEAVING_SECONDS = 10.0  # that the keeper of an earlier run may take to end


class IntentWriter:
    """One thread at a time may call it for one job."""

    def __init__(
        self,
        home: Home,
        healthy_seconds: float,
        log_bytes: int | None,
        host_timeout: float,
        machine: Machine,
    ) -> None:
        self._home, self._machine = home, machine
        self._healthy_seconds, self._log_bytes, self._host_timeout = healthy_seconds, log_bytes, host_timeout
        self._leaving: dict[str, tuple[int, float]] = {}  # by job: its run, and since when an earlier one's keeper ends

    def forget(self, holding: set[str]) -> None:
        """All jobs but these."""
        self._leaving = {job_id: leaving for job_id, leaving in self._leaving.items() if job_id in holding}

    def propagate(self, job: Job) -> None:
        """To the keeper of this run only: one of an earlier run that is about to end must not act on it."""
        stored = read_json(self._home.run_dir(job.id).intent)
        if not self._is_of_earlier_run(job, stored):
            self._write(job, stored)

    def _is_of_earlier_run(self, job: Job, stored: object) -> bool:
        """Whether ``stored`` is for a keeper that is still about to end; a job may have written anything there."""
        run = stored.get("run") if isinstance(stored, dict) else None
        if type(run) is not int or run >= job.run:
            return False
        known, since = self._leaving.get(job.id, (None, 0.0))
        if known != job.run:
            since = time.monotonic()
            self._leaving[job.id] = job.run, since
        return time.monotonic() - since < _LEAVING_SECONDS

    def write(self, job: Job) -> None:
        """Before a keeper is launched, for which it is. Raises OSError."""
        self._write(job, read_json(self._home.run_dir(job.id).intent))

    def _write(self, job: Job, stored: object) -> None:
        """A pending request to stop is sent again every time: a server may have died between writing and notifying."""
        run_dir = self._home.run_dir(job.id)
        is_held = job.intent is JobIntent.HOLD  # after it had left the queue
        is_displaced = job.intent is JobIntent.RUN and is_stopping(job)
        devices = job.wanted_devices or job.devices
        intent = RunIntent(
            JobIntent.DRAIN if is_held or is_displaced else job.intent,
            job.run,
            devices,
            job.max_failures,
            _chosen_snapshot(job),
            self._healthy_seconds,
            self._log_bytes,
            launch=job.launch_number,
            host_timeout=self._host_timeout,
            gpus=self._gpus(job, devices),
            reason=job.displaced["reason"] if job.displaced and job.intent is JobIntent.RUN else None,
            excluded={host: node["reason"] for host, node in (job.slurm or {}).get("excluded", {}).items()},
        )
        changed = stored != intent.to_json()
        if changed:
            self._leaving.pop(job.id, None)
            if run_dir.intent.is_dir() and not run_dir.intent.is_symlink():
                run_dir.intent.rename(run_dir.root / f".{run_dir.intent.name}.{time.time_ns()}")  # the job has made it
            write_json(run_dir.intent, intent.to_json())
        if (changed or intent.intent is not JobIntent.RUN) and not launcher_of(job.spec).is_remote:
            notify(run_dir, ControlMessage(MessageType.INTENT))

    def _gpus(self, job: Job, devices: list[str]) -> list[str] | None:
        """As the keeper is to name them to the ranks; None where it has no say in that."""
        if not takes_slots(job.spec) or job.spec.device_kind != "cuda":
            return None
        return cuda_visible_devices(self._machine.slots, devices).split(",")


def _chosen_snapshot(job: Job) -> int | None:
    """The step that this run begins from; a choice for an earlier run was applied then."""
    return job.rewind["step"] if job.rewind.get("run") == job.run else None
