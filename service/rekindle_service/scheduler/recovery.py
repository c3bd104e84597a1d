"""The database brought up to date with the run directories: at startup, after a restore, or from them alone.

Interrupted submissions are completed, and lost rows are made again. A run directory that has its name was submitted,
and is never removed here (``jobs.submission_record``).
"""

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from rekindle.contract.files import fsync_directory, read_json
from rekindle.contract.job import JobSpec, RunIntent
from rekindle.contract.run_dir.json_records import read_record
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.access.permissions import PERSON
from rekindle_service.config.home import Home, is_job_id, server_user
from rekindle_service.experiments.experiment_records import stored_experiments
from rekindle_service.jobs.packaging.code_sources import Bundles
from rekindle_service.jobs.submission_record import SubmissionRecord, confirm_runs, read_submission
from rekindle_service.jobs.submitter import new_job
from rekindle_service.scheduler.run_sync import RunSync
from rekindle_service.store import StorageError, Store
from rekindle_service.store.backups import copy_database, require_database
from rekindle_service.store.tables import NEW_SLURM_LAUNCH, Job

_log = structlog.get_logger(__name__)

_MAX_RUN = 1 << 31
_HELD = (
    "The database had lost this job; its row was made again from its run directory. It has never started and is held: "
    "resume it to let it start, or cancel it"
)
_STARTED = "The database had lost this job; its row was made again from its run directory"
_OLDER = "The database was older than the run directory; the row was made again from the journal"
_GONE = "The run directory is missing: the job was deleted after this database was saved, or its files were removed"
_SKIPPED_VERSIONS = 1 << 32
"""More than any client can have received since the backup was made: it gets what changes from now on."""


@dataclass(slots=True)
class Recovered:
    """What a recovery has found, by the ids of the jobs."""

    held: list[str] = field(default_factory=list)  # without a row, never started
    started: list[str] = field(default_factory=list)  # without a row
    older: list[str] = field(default_factory=list)  # with a row from before their latest run
    gone: list[str] = field(default_factory=list)  # without a run directory
    unreadable: list[str] = field(default_factory=list)  # directories that no row can be made from
    experiments: list[str] = field(default_factory=list)  # without a row


def recover_on_startup(home: Home, store: Store) -> Recovered:
    """Once, when a server starts and before it accepts requests."""
    Bundles(home).remove_partial()
    known = store.recovery.known_jobs()
    _finish_submissions(home, known)
    recovered = Recovered()
    _add_lost_rows(home, store, known, recovered)
    for job_id, run in known.items():
        _compare(store, home.run_dir(job_id), run, recovered)
    return recovered


def _finish_submissions(home: Home, known: dict[str, int]) -> None:
    """One whose row was committed lacks only the name of its directory.

    Any other was confirmed to nobody: ``retention.deletions`` removes it.
    """
    unnamed = [each.name.removeprefix(".new-") for each in home.runs.iterdir() if each.name.startswith(".new-")]
    confirm_runs(home, [job_id for job_id in unnamed if job_id in known])


def _add_lost_rows(home: Home, store: Store, known: dict[str, int], recovered: Recovered) -> None:
    rows = known.keys() | store.recovery.deleted_jobs()
    names = (each.name for each in home.runs.iterdir() if is_job_id(each.name))
    lost = list(_lost_jobs((home.run_dir(name) for name in names if name not in rows), recovered))
    _add_lost_experiments(home, store, {job.experiment_id for job in lost}, recovered)
    experiments = store.recovery.experiment_ids()
    for job in sorted(lost, key=lambda job: (job.created_at, job.number)):
        if job.experiment_id not in experiments:
            job.experiment_id, job.trial = None, {}
        is_held = job.state is JobState.QUEUED
        job.notice = _HELD if is_held else _STARTED
        store.recovery.add_job(job, job.notice)
        (recovered.held if is_held else recovered.started).append(job.id)
        _log.warning("A job without a row was rebuilt from its run directory", job=job.id, name=job.name, held=is_held)


def _lost_jobs(run_dirs: Iterator[RunDir], recovered: Recovered) -> Iterator[Job]:
    for run_dir in run_dirs:
        job = rebuilt_job(run_dir)
        if job is not None:
            yield job
            continue
        recovered.unreadable.append(run_dir.job_id)
        path = str(run_dir.root)
        _log.warning("No job can be rebuilt from this directory: spec.json is missing or unreadable", path=path)


def _add_lost_experiments(home: Home, store: Store, needed: set[str | None], recovered: Recovered) -> None:
    known = store.recovery.experiment_ids()
    for experiment in stored_experiments(home):
        if experiment.id in needed and experiment.id not in known:
            store.recovery.add_experiment(experiment)
            recovered.experiments.append(experiment.id)
            _log.warning("An experiment without a row was rebuilt", experiment=experiment.id, name=experiment.name)


def _compare(store: Store, run_dir: RunDir, run: int, recovered: Recovered) -> None:
    """A row of an older database may say that a job waits, which has run since, or that it exists at all."""
    if not run_dir.root.exists():
        store.recovery.hold(run_dir.job_id, _GONE)
        recovered.gone.append(run_dir.job_id)
        return
    intent = read_record(run_dir.intent, RunIntent)
    if intent is not None and run < intent.run < _MAX_RUN:
        store.recovery.restart_from_journal(run_dir.job_id, intent, _OLDER)
        recovered.older.append(run_dir.job_id)
        _log.warning("The row of a job was older than its run directory", job=run_dir.job_id, run=intent.run)


def rebuilt_job(run_dir: RunDir) -> Job | None:
    """The row of a job from its run directory, or None.

    A job that was started becomes starting: the journal, read from its beginning, moves it to its real state. One
    that never started is held, since it may not be needed any more.
    """
    try:
        stored_spec = read_json(run_dir.spec) or {}
        spec = JobSpec.from_json(stored_spec)
        stored = read_json(run_dir.intent)
        intent = None if stored is None else RunIntent.from_json(stored)
    except (OSError, KeyError, TypeError, ValueError):
        return None
    if stored_spec.get("job_id") != run_dir.job_id:
        return None  # a copy of another run directory
    job = new_job(run_dir.job_id, spec, **_submitted(run_dir, stored_spec), intent=JobIntent.HOLD)
    if intent is not None:
        job.state = JobState.STARTING
        job.intent, job.run, job.devices = intent.intent, intent.run, intent.devices
        job.max_failures, job.started_at = intent.max_failures, job.created_at
        job.launch_number = intent.launch
        job.slurm = dict(NEW_SLURM_LAUNCH) if intent.launch else None
    return job


def _submitted(run_dir: RunDir, stored_spec: dict[str, Any]) -> dict[str, Any]:
    """The columns of the submission."""
    record = read_submission(stored_spec) or SubmissionRecord(0, _written_at(run_dir))
    known_owner = record.owner is not None and PERSON.fullmatch(record.owner)
    columns = {**record.to_json(), "owner": record.owner if known_owner else server_user()}
    return columns if _is_trial(record.trial) else {**columns, "experiment_id": None, "trial": {}}


def _is_trial(trial: dict[str, Any]) -> bool:
    """Whether this is what ``experiments.matrix.Trial`` is stored as."""
    parameters, repeat = trial.get("parameters"), trial.get("repeat")
    plain = isinstance(parameters, dict) and all(
        isinstance(each, str | int | float | None) for each in parameters.values()
    )
    return plain and type(repeat) is int and 0 <= repeat < _MAX_RUN


def _written_at(run_dir: RunDir) -> float:
    """When the spec was written, in seconds since the epoch."""
    for path in (run_dir.spec, run_dir.root):
        with suppress(OSError):
            return path.stat().st_mtime
    return 0.0


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """``replaced``: the directory of the files that were the database until now, None where there were none."""

    jobs: int
    recovered: Recovered
    replaced: Path | None


def restore(home: Home, backup: Path) -> RestoreReport:
    """Use ``backup`` as the database, and bring it up to date with the run directories.

    Raises HomeInUseError while a server runs, CorruptDatabaseError for a file that is no backup or is of a newer
    version, StorageError and OSError.
    """
    with _owned(home):
        require_database(backup)
        copy = home.root / ".rekindle.db.restored"
        with closing(sqlite3.connect(f"{backup.absolute().as_uri()}?mode=ro", uri=True)) as source:
            copy_database(source, copy)
        try:
            _require_version(copy)
            replaced = _move_away(home)
            copy.rename(home.database)
            fsync_directory(home.root)
        finally:
            copy.unlink(missing_ok=True)
        return _recover(home, replaced)


def rebuild(home: Home) -> RestoreReport:
    """Make a new database from the run directories. Raises what ``restore`` raises."""
    with _owned(home):
        return _recover(home, _move_away(home))


@contextmanager
def _owned(home: Home) -> Iterator[None]:
    home.create()
    lock = home.lock()
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(f"{home.database} cannot be written ({error})", full=False) from error
    finally:
        lock.release()


def _require_version(database: Path) -> None:
    """Raises CorruptDatabaseError where this version cannot open it; upgrades it."""
    store = Store(database)
    try:
        store.migrate(backup=False)
    finally:
        store.close()


def _move_away(home: Home) -> Path | None:
    """With its log, which would be mixed with the next database."""
    files = [home.database.with_name(home.database.name + suffix) for suffix in ("-wal", "-shm", "")]
    present = [file for file in files if file.exists() or file.is_symlink()]
    if not present:
        return None
    home.backups.mkdir(mode=0o700, exist_ok=True)
    target = home.backups / f"replaced-{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    target.mkdir(mode=0o700)
    for file in present:
        file.rename(target / file.name)
    fsync_directory(target)
    fsync_directory(home.root)
    return target


def _recover(home: Home, replaced: Path | None) -> RestoreReport:
    store = Store(home.database)
    try:
        store.migrate()
        store.recovery.skip_versions(_SKIPPED_VERSIONS)
        recovered = recover_on_startup(home, store)
        sync = RunSync(store, home)
        for job in store.holding():
            sync.read_journal(job)
        return RestoreReport(sum(store.totals().jobs.values()), recovered, replaced)
    finally:
        store.close()
