"""What keepers and ranks have written, brought into rows: each journal record once, progress when it changes."""

import os
import stat
import time
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from rekindle.contract.run_dir.journal import read_journal
from rekindle.contract.states import HOLDING_SLOTS
from rekindle_service.config.home import Home
from rekindle_service.jobs.time_breakdown import goodput, time_breakdown
from rekindle_service.run_readers.safe_open import read_small
from rekindle_service.store import Store
from rekindle_service.store.projection import RowChanges, project
from rekindle_service.store.tables import Attempt, Job

_LONGEST_TEXT = 500  # characters of what a script says that a row keeps


def _shortened(value: Any) -> Any:
    return value[:_LONGEST_TEXT] if isinstance(value, str) else value


_Count = Annotated[int, Field(ge=0, le=1 << 53)]
_Rate = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Text = Annotated[str, BeforeValidator(_shortened)]


class Progress(BaseModel):
    """What a job's row shows of rank 0's ``RankStatus``, which the script may have filled with anything."""

    phase: _Text | None = None
    epoch: _Count | None = None
    epochs: _Count | None = None
    step: _Count | None = None
    steps: _Count | None = None
    steps_per_second: _Rate | None = None
    snapshot_step: _Count | None = None
    saving_seconds: _Rate | None = None
    notice: _Text | None = None

    def columns(self) -> dict[str, Any]:
        """As columns of the job. A step that is not told (while a snapshot is restored) leaves the last one shown."""
        passing = {
            "phase": self.phase,
            "notice": self.notice,
            "steps_per_second": self.steps_per_second,
            "eta_seconds": self._seconds_left(),
        }
        lasting = {
            "epoch": self.epoch,
            "epochs": self.epochs,
            "step": self.step,
            "steps": self.steps,
            "snapshot_step": self.snapshot_step,
            "progress": self._share(),
        }
        return passing | {name: value for name, value in lasting.items() if value is not None}

    def _share(self) -> float | None:
        return min(1.0, self.step / self.steps) if self.step is not None and self.steps else None

    def _seconds_left(self) -> float | None:
        if self.step is None or self.steps is None or not self.steps_per_second:
            return None
        return max(0, self.steps - self.step) / self.steps_per_second


class RunSync:
    """Reads run directories into rows. Only the engine's thread may call it."""

    def __init__(self, store: Store, home: Home) -> None:
        self._store = store
        self._home = home

    def read_journal(self, job: Job) -> Job:
        """Apply what the keeper has written since; returns the row as it is then."""
        path = self._home.run_dir(job.id).journal
        if _size(path) <= job.journal_offset:
            return job
        attempts = self._store.attempts(job.id)
        effect = project(job, attempts, read_journal(path, job.journal_offset))
        if effect is None:
            return job
        if effect.states and effect.states[-1].to not in HOLDING_SLOTS:
            known = {attempt.number: attempt for attempt in attempts} | effect.attempts
            self._round_off(job, effect, list(known.values()))
        return self._store.apply_journal(job, effect) or job

    def read_progress(self, job: Job) -> None:
        """Bring the row up to what rank 0 of the current attempt says; nothing is written if it says nothing new."""
        told = self._told(job.id, job.attempt)
        if told is None:
            return
        columns = told.columns()
        if any(getattr(job, name) != value for name, value in columns.items()):
            attempts = self._store.attempts(job.id)
            for attempt in attempts[-1:]:
                attempt.saving_seconds = told.saving_seconds
            self._store.update_progress(job.id, **columns, goodput=goodput(time_breakdown(job, attempts, time.time())))

    def _round_off(self, job: Job, effect: RowChanges, attempts: list[Attempt]) -> None:
        """Add the last words of a run: where rank 0 stood, and how well the time was used."""
        told = self._told(job.id, effect.columns.get("attempt", job.attempt))
        last = {} if told is None else told.columns()
        effect.columns = {**last, **effect.columns, "goodput": goodput(time_breakdown(job, attempts, time.time()))}

    def _told(self, job_id: str, attempt: int) -> Progress | None:
        run_dir = self._home.run_dir(job_id)
        data = read_small(run_dir.root, run_dir.attempt(attempt).rank(0).status)
        try:
            return None if data is None else Progress.model_validate_json(data)
        except ValidationError:
            return None


def _size(path: Path) -> int:
    """Bytes of a regular file; 0 for anything else, which must not be opened (a FIFO would block for ever)."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0
