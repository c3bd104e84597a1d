"""Deletions: directories are removed by a thread of their own, and what cannot be removed is reported and retried."""

import os
import secrets
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from rekindle.contract.backoff import exponential_backoff
from rekindle.contract.locks import lock_holder
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import directory_beneath
from rekindle_service.config.home import DELETED, Home
from rekindle_service.retention.remove_tree import remove_tree

_log = structlog.get_logger(__name__)

_KEEPER_INTERVAL = 0.2  # seconds between two looks whether the keeper of a deleted job has ended
_KEEPER_TIMEOUT = 60.0  # seconds after which a keeper that has not ended is reported
_MAX_DELAY = 600.0  # seconds between two tries
_LEFTOVERS = (DELETED, ".new-")


@dataclass(frozen=True, slots=True)
class FailedDeletion:
    """A directory that should be gone and is not. Times are seconds since the epoch."""

    path: str
    reason: str
    since: float
    next_try_at: float


@dataclass(slots=True)
class _Deletion:
    """``source`` is moved to ``trash`` first, unless it is None or has been moved already."""

    trash: Path
    source: Path | None = None
    run_dir: RunDir | None = None  # of a deleted job: its keeper must have ended, and its shared memory is freed
    requested_at: float = field(default_factory=time.time)
    failures: int = 0  # in a row
    reason: str = ""  # of the last failure
    next_try: float = 0.0  # time.monotonic()
    deadline: float = field(default_factory=lambda: time.monotonic() + _KEEPER_TIMEOUT)  # for the keeper to end


class Deletions:
    """Thread-safe. Requests live in memory: what is left at a restart is found again by ``adopt``."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._pending: dict[Path, _Deletion] = {}
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="deletions", daemon=True)

    # --- requests

    def adopt(self) -> None:
        """Request the removal of what a killed server has left. Precondition: nothing is being submitted yet."""
        with suppress(FileNotFoundError):
            for path in self._home.runs.iterdir():
                if path.name.startswith(_LEFTOVERS):
                    self._request(_Deletion(path))

    def remove_run(self, job_id: str) -> None:
        """Remove the run directory of a deleted job, once its keeper has ended."""
        run_dir = self._home.run_dir(job_id)
        self._request(_Deletion(self._home.deleted_run(job_id), run_dir.root, run_dir))

    def remove_beneath(self, root: Path, path: Path) -> None:
        """Remove the directory ``path`` beneath ``root``, to which no link may lead; it disappears before the return.

        Raises OSError where it cannot be moved.
        """
        trash = self._home.runs / f"{DELETED}{path.name}-{secrets.token_hex(6)}"
        with directory_beneath(root, path.parent) as directory:
            os.rename(path.name, trash, src_dir_fd=directory)  # relative to a descriptor
        self._request(_Deletion(trash))

    def _request(self, deletion: _Deletion) -> None:
        with self._lock:
            self._pending.setdefault(deletion.trash, deletion)
        self._woken.set()

    # --- what is left to do

    @property
    def pending(self) -> int:
        """How many directories are to be removed."""
        with self._lock:
            return len(self._pending)

    def stuck(self) -> list[FailedDeletion]:
        """What could not be removed, oldest first."""
        with self._lock:
            failed = [each for each in self._pending.values() if each.reason]
        until = time.time() - time.monotonic()
        return [
            FailedDeletion(
                str(each.source if each.source is not None and each.source.exists() else each.trash),
                each.reason,
                each.requested_at,
                until + each.next_try,
            )
            for each in failed
        ]

    def retry(self) -> None:
        """Try everything again now: somebody may have removed the obstacle."""
        with self._lock:
            for each in self._pending.values():
                each.next_try = 0.0
        self._woken.set()

    # --- the thread

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stop within a few removed files; the next server continues."""
        self._stopping.set()
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._woken.clear()
            self._woken.wait(self.run_due())

    def run_due(self) -> float | None:
        """Try everything that is due; returns the seconds until something else is, None where nothing is left."""
        with self._lock:
            due = [each for each in self._pending.values() if each.next_try <= time.monotonic()]
        for deletion in due:
            if not self._stopping.is_set():
                self._try(deletion)
        with self._lock:
            times = [each.next_try for each in self._pending.values()]
        return max(0.0, min(times) - time.monotonic()) if times else None

    def _try(self, deletion: _Deletion) -> None:
        """One bad directory never blocks another: every error ends here."""
        try:
            done = self._is_free(deletion) and self._remove(deletion)
        except Exception as error:  # noqa: BLE001  # the thread must outlive any error of one directory
            done = False
            self._fail(deletion, str(error))
        if done:
            with self._lock:
                self._pending.pop(deletion.trash, None)

    def _is_free(self, deletion: _Deletion) -> bool:
        """Whether the keeper of the job has ended."""
        if deletion.run_dir is None or (pid := lock_holder(deletion.run_dir.keeper_lock)) is None:
            return True
        if time.monotonic() < deletion.deadline:
            deletion.next_try = time.monotonic() + _KEEPER_INTERVAL
        else:
            self._fail(deletion, f"the keeper of the job, process {pid}, still runs")
        return False

    def _remove(self, deletion: _Deletion) -> bool:
        if deletion.run_dir is not None:
            free_memory(deletion.run_dir)
        if deletion.source is not None:
            with suppress(FileNotFoundError):  # an earlier try has done it
                deletion.source.rename(deletion.trash)
        removal = remove_tree(deletion.trash, self._stopping.is_set)
        if not removal.done and not self._stopping.is_set():
            self._fail(deletion, removal.reason or "it was filled while it was removed")
        return removal.done

    def _fail(self, deletion: _Deletion, reason: str) -> None:
        deletion.failures += 1
        deletion.next_try = time.monotonic() + exponential_backoff(deletion.failures, 1.0, _MAX_DELAY)
        if reason != deletion.reason:
            _log.warning("A directory cannot be removed", path=str(deletion.trash), reason=reason)
        deletion.reason = reason


def free_memory(run_dir: RunDir) -> None:
    """Remove a job's snapshots in shared memory and its temporary files: nothing else does when no keeper ends it."""
    if lock_holder(run_dir.keeper_lock) is None:
        remove_tree(run_dir.memory)
        remove_tree(run_dir.private_tmp)
