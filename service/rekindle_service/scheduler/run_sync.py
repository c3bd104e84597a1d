"""Brings what keepers and ranks have written into rows: each journal record once, progress when it changes."""

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from itertools import takewhile
from pathlib import Path
from typing import Any

from rekindle.contract.run_dir.attempt_history import AttemptSummary
from rekindle.contract.run_dir.journal import MAX_JOURNAL_BYTES, JobEnded, Record, earlier, read_journal
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.rank_records import RankStatus
from rekindle.contract.run_dir.script_files import MAX_LISTED, Observations, shown_path
from rekindle.contract.safe_open import regular_size
from rekindle.contract.states import HOLDING_SLOTS, JobState
from rekindle_service.config.home import Home
from rekindle_service.jobs.time_breakdown import goodput, time_breakdown
from rekindle_service.mirror.state import read_state
from rekindle_service.run_readers.rank_rows import RANK_ZERO, read_rank_zero_status
from rekindle_service.scheduler.preemption import ranks_text
from rekindle_service.store import Store
from rekindle_service.store.projection import RowChanges, TimelineEvent, project
from rekindle_service.store.tables import Job

_MAX_BYTES = 4 << 20  # of a journal that are read at once
_MAX_TEXT = 500  # characters of what a script reports that a row keeps
_MAX_COUNT = 1 << 53  # what a database and JavaScript can hold
_NOT_LOADED = (
    "The script saves checkpoints, and attempt {attempt} has loaded none: it has begun from the start. Give the "
    "argument that makes it resume with --on-restart; see docs/own-scripts.md."
)
_OTHER_SIZE = (
    "Attempt {attempt} runs on {ranks}, the first one ran on {first}. If the script gives each rank a batch of "
    "fixed size, its global batch is now {ratio:g} times as large as the one for which its learning rate was chosen: "
    "divide the batch by WORLD_SIZE or scale the learning rate, or submit the job with a fixed number of ranks."
)
_VISIBLE = 0.005  # by which a goodput has changed
_MIN_RATE = 1e-6  # steps per second below which no time left is shown


class RunSync:
    """Reads run directories into rows. One thread at a time may call it for one job."""

    def __init__(self, store: Store, home: Home) -> None:
        self._store = store
        self._home = home
        self.unmirrored: dict[str, str] = {}  # by job whose training has succeeded: what it waits for
        self._named: defaultdict[str, set[str]] = defaultdict(set)  # problems by job that are in its history

    def read_journal(self, job: Job, ahead: float = 0.0) -> Job:
        """Apply what the keeper has written since, at most 4 MiB of it; returns the row as it is then.

        ``ahead``: seconds of the times that the latest launch writes before this machine's.
        """
        path = self._home.run_dir(job.id).journal
        size = regular_size(path)
        if size == job.journal_offset:
            return job
        if size < job.journal_offset:
            cut = (
                f"{path.name} was cut off, or is no regular file, after {job.journal_offset} bytes of it had been read"
            )
            return self._name_problem(job, f"{cut}: new records are not seen")
        if job.journal_offset >= MAX_JOURNAL_BYTES:
            return self._name_problem(job, f"{path.name} has more than {MAX_JOURNAL_BYTES} bytes: the rest is not read")
        attempts = self._store.detailed_attempts(job.id)
        try:
            records = read_journal(path, job.journal_offset, max_bytes=_MAX_BYTES)
            due = takewhile(lambda record: not self._awaits_mirror(job, record), records)
            own = (earlier(each, ahead if each.launch == job.launch_number else 0.0) for each in due)
            changes = project(job, attempts, own)
        except OSError as error:
            return self._name_problem(job, f"{path.name} cannot be read: {error.strerror}")
        if changes is None:
            return job
        if changes.states and changes.states[-1].to not in HOLDING_SLOTS:
            known = {attempt.number: attempt for attempt in attempts} | changes.attempts
            self._finalize(job, changes, list(known.values()))
        return self._store.apply_journal(job, changes) or job

    def _awaits_mirror(self, job: Job, record: Record) -> bool:
        """Whether a success does not count yet: of a job that requires its copies."""
        is_success = isinstance(record, JobEnded) and record.state is JobState.SUCCEEDED and record.run >= job.run
        if not (is_success and job.spec.require_mirror):
            return False
        mirror = read_state(self._home, job.id)
        if mirror is not None and mirror.reaches(record.end):
            self.unmirrored.pop(job.id, None)
            return False
        failing = None if mirror is None else mirror.notice
        self.unmirrored[job.id] = f"trained; waiting for the copy of its last snapshot at {job.spec.mirror}" + (
            f": {failing}" if failing else ""
        )
        return True

    def read_progress(self, job: Job) -> None:
        """Update the row from the status of rank 0 in the current attempt, if anything has changed."""
        status = self._read_progress(job.id, job.attempt)
        if status is None:
            path = self._home.run_dir(job.id).attempt(job.attempt).rank(RANK_ZERO).status
            if os.path.lexists(path):
                self._name_problem(job, f"attempt {job.attempt}: {path.name} of rank 0 is not what a rank writes")
            return
        observed = self._observed_columns(job, status)
        columns = progress_columns(status) | self._size_notice(job, status) | observed
        if columns["notice"] is None and (job.notice or "").startswith(self._home.run_dir(job.id).journal.name):
            del columns["notice"]  # what is wrong with the journal stays so
        if job.stalled is not None or (job.slurm or {}).get("state") == "COMPLETING":
            columns |= {"steps_per_second": None, "eta_seconds": None}  # they are of the past
        if (columns.get("snapshot_step") or 0) > (job.snapshot_step or 0):
            columns["snapshot_at"] = time.time()
        changed = any(getattr(job, name) != value for name, value in columns.items())
        if not changed and job.stalled is None:
            return
        attempts = self._store.attempts(job.id)
        for attempt in attempts[-1:]:
            attempt.saving_seconds = status.saving_seconds
        share = _goodput(job, attempts)
        if changed or abs((share or 0.0) - (job.goodput or 0.0)) > _VISIBLE:
            self._store.update_progress(job.id, **columns, goodput=share)

    def _name_problem(self, job: Job, problem: str) -> Job:
        """Once in the life of this server: in the history of the job and in its notice."""
        if problem in self._named[job.id]:
            return job
        self._named[job.id].add(problem)
        event = TimelineEvent("file_skipped", problem, time.time())
        changes = RowChanges(job.journal_offset, columns={"notice": problem}, events=[event])
        return self._store.apply_journal(job, changes) or job

    def _finalize(self, job: Job, changes: RowChanges, attempts: Sequence[AttemptSummary]) -> None:
        """Add what is final once a run has ended: where rank 0 stood, and how well the time was used."""
        status = self._read_progress(job.id, changes.columns.get("attempt", job.attempt))
        last = {} if status is None else progress_columns(status) | self._observed_columns(job, status)
        changes.columns = {
            **last,
            **changes.columns,
            "goodput": _goodput(job, attempts),
        }

    def _observed_columns(self, job: Job, status: RankStatus) -> dict[str, Any]:
        """What the keeper has learned of the script; nothing is estimated where the script itself reports."""
        job_id, mirror = job.id, None if job.spec.mirror is None else read_state(self._home, job.id)
        run_dir = self._home.run_dir(job_id)
        observed = read_record(run_dir.observed, Observations, run_dir.root) or Observations()
        reports = status.step is not None
        not_loaded = observed.saves_without_loading and status.notice is None and status.snapshot_policy is None
        return {
            **({"notice": _NOT_LOADED.format(attempt=observed.attempt)} if not_loaded else {}),
            "checkpoints": _checkpoint_columns(observed, run_dir.code),
            "estimated_step": None if reports else observed.estimated_step,
            "estimated_epoch": None if reports or status.epoch is not None else observed.estimated_epoch,
            **({} if reports else _estimates(observed)),
            **({} if mirror is None or mirror.notice is None else {"notice": mirror.notice}),
        }

    def _size_notice(self, job: Job, status: RankStatus) -> dict[str, Any]:
        """A ``Run`` keeps the global batch whatever the number of ranks; another script may not."""
        if job.attempt < 2 or job.spec.min_ranks == job.spec.max_ranks:
            return {}
        if status.snapshot_policy is not None or status.notice is not None:
            return {}
        attempts = self._store.attempts(job.id)
        first, now = attempts[0].world_size if attempts else 0, attempts[-1].world_size if attempts else 0
        if first == now or not first:
            return {}
        number, ratio = attempts[-1].number, now / first
        return {"notice": _OTHER_SIZE.format(attempt=number, ranks=ranks_text(now), first=first, ratio=ratio)}

    def _read_progress(self, job_id: str, attempt: int) -> RankStatus | None:
        """The status of rank 0, or None where there is none, or the script has reported values that no row can hold."""
        run_dir = self._home.run_dir(job_id)
        status = read_rank_zero_status(run_dir, attempt)
        if status is None:
            return None
        numbers = (status.epoch, status.epochs, status.step, status.steps, status.snapshot_step)
        rates = (status.steps_per_second, status.saving_seconds)
        return status if all(0 <= (number or 0) <= _MAX_COUNT for number in (*numbers, *rates)) else None


def _goodput(job: Job, attempts: Sequence[AttemptSummary]) -> float | None:
    return goodput(time_breakdown(job, attempts, time.time()), attempts)


def _estimates(observed: Observations) -> dict[str, Any]:
    """Columns of the progress and the time left by what the script prints; without any the last progress is kept."""
    progress = observed.estimated_progress
    left = None if observed.ended else observed.estimated_seconds_left
    return {"eta_seconds": left} | ({} if progress is None else {"progress": progress})


def _checkpoint_columns(observed: Observations, code: Path) -> list[dict[str, Any]]:
    """The checkpoints that the script has written or loaded: others only came with the code."""
    used = [each for each in observed.checkpoints if each.attempt or each.loaded is not None]
    columns = [{**asdict(each), "path": shown_path(each.path, code)} for each in used[:MAX_LISTED]]
    for column in columns:
        del column["files"], column["lacks"]
    return columns


def progress_columns(status: RankStatus) -> dict[str, Any]:
    """Columns of the job. A step that is not reported (during a restore) leaves the last one shown."""
    step, steps, rate = status.step, status.steps, status.steps_per_second
    left = max(0, steps - step) / rate if step is not None and steps is not None and rate and rate > _MIN_RATE else None
    passing = {
        "phase": status.phase and status.phase[:_MAX_TEXT],
        "notice": status.notice and status.notice[:_MAX_TEXT],
        "steps_per_second": rate,
        "eta_seconds": left,
    }
    lasting = {
        "epoch": status.epoch,
        "epochs": status.epochs,
        "step": step,
        "steps": steps,
        "snapshot_step": status.snapshot_step,
        "progress": min(1.0, step / steps) if step is not None and steps else None,
    }
    return passing | {name: value for name, value in lasting.items() if value is not None}
