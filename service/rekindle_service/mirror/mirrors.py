"""The copiers of all jobs, one process each: started, stopped at the end of a run, and started again after an error."""

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

import structlog

from rekindle.contract.backoff import exponential_backoff
from rekindle.contract.locks import lock_holder
from rekindle.contract.safe_open import regular_size
from rekindle.contract.states import HOLDING_SLOTS
from rekindle_service.config.home import Home
from rekindle_service.mirror.copier import OTHER_COPIER
from rekindle_service.mirror.state import FAILING, MirrorState, read_state
from rekindle_service.periodic_thread import PeriodicThread
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

_INTERVAL = 1.0  # seconds
_MAX_BACKOFF = 60.0  # seconds between two copiers of a job
_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Copier:
    process: subprocess.Popen[bytes] | None = None
    is_ending: bool = False  # it knows that the run is over
    failures: int = 0  # in a row
    since: float | None = None  # begin of the outage that it last told of
    try_at: float = 0.0  # time.monotonic() of the next start


class Mirrors:
    """Copiers outlive this server, as keepers do: the next one finds them by their locks."""

    def __init__(self, store: Store, home: Home) -> None:
        self._store, self._home = store, home
        self._copiers: dict[str, _Copier] | None = None  # by job; None before the first look
        self._thread = PeriodicThread("mirrors", self.observe, _INTERVAL, "Mirroring failed")

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._thread.close()
        for copier in (self._copiers or {}).values():
            if copier.process is not None and copier.process.poll() is None:
                copier.process.returncode = 0  # else its destructor would warn of a forgotten child

    def observe(self) -> None:
        """Start what is to copy, and forget what is copied."""
        if self._copiers is None:
            self._copiers = {path.stem: _Copier() for path in self._home.mirrors.glob("*.json")}
        for holding in self._store.holding():
            if holding.spec.mirror is not None:
                self._copiers.setdefault(holding.id, _Copier())
        for job_id, copier in list(self._copiers.items()):
            if (job := self._store.job(job_id)) is None:
                self._home.mirror(job_id).unlink(missing_ok=True)
                self._home.mirror_lock(job_id).unlink(missing_ok=True)
            if job is None or not self._continue(job, copier):
                del self._copiers[job_id]

    def _continue(self, job: Job, copier: _Copier) -> bool:
        """False where nothing is left to copy, until the job runs again."""
        is_over = job.state not in HOLDING_SLOTS
        code = None if copier.process is None else copier.process.poll()
        state = read_state(self._home, job.id)
        if state is not None and state.error is None and (job.notice or "").startswith(FAILING):
            self._store.update_progress(job.id, notice=None)
        if copier.process is not None and code is None:
            if is_over and not copier.is_ending:
                copier.is_ending = True
                copier.process.terminate()  # it completes the copies
            return True
        if code is not None:
            copier.process = None
            since = None if state is None else state.since
            is_new, copier.since = since not in (None, copier.since), since
            copier.failures = 0 if code == 0 else 1 if is_new else copier.failures + (code != OTHER_COPIER)
            copier.try_at = time.monotonic() + exponential_backoff(max(1, copier.failures), 1.0, _MAX_BACKOFF)
            self._show_end(job, code, state, is_new=is_new)
        if is_over and state is not None and state.reaches(regular_size(self._home.run_dir(job.id).journal)):
            return False
        if time.monotonic() >= copier.try_at and lock_holder(self._home.mirror_lock(job.id)) is None:
            copier.process, copier.is_ending = self._launch(job, is_over=is_over), is_over
        return True

    def _launch(self, job: Job, *, is_over: bool) -> subprocess.Popen[bytes]:
        task = {"home": str(self._home.root), "server": os.getpid(), "job_id": job.id, "number": job.number}
        command = [sys.executable, "-P", "-m", "rekindle_service.mirror.copier"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)
        if process.stdin is not None:
            with suppress(BrokenPipeError), process.stdin as stdin:
                stdin.write(json.dumps({**task, "over": is_over, "spec": job.spec.to_json()}).encode())
        return process

    def _show_end(self, job: Job, code: int, state: MirrorState | None, *, is_new: bool) -> None:
        """Show what is wrong as the notice of the job, and record in its history when mirroring begins to fail."""
        notice = None if state is None else state.notice
        if code not in (0, OTHER_COPIER):
            _log.warning("A copier has ended", job=job.id, exit_code=code, notice=notice)
        if notice is not None and is_new:
            self._store.retention.record(job.id, "mirror_failed", notice)
        if notice is not None:
            self._store.update_progress(job.id, notice=notice)
