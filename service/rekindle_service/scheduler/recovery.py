"""Recovery at startup: leftovers are removed, lost rows rebuilt from run directories, deleted runs removed."""

import shutil
from contextlib import suppress

import structlog

from rekindle.contract.files import read_json
from rekindle.contract.job import JobSpec, RunIntent
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.config.home import Home, is_job_id
from rekindle_service.jobs.packaging.bundles import Bundles
from rekindle_service.jobs.submitter import new_job
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

_log = structlog.get_logger(__name__)


def recover_on_startup(home: Home, store: Store) -> None:
    """Once, when a server starts and before it accepts requests.

    Partial submissions and deletions are removed by ``retention.deletions``. A run directory without a row is a
    submission that was never confirmed, or remains of a lost database: at the first start with a new database, or if
    the job has ever started, its row is rebuilt; no training is removed because its row is missing.
    """
    Bundles(home).remove_partial()
    rebuild_all = store.starts() == 0
    job_dirs = [RunDir(directory) for directory in home.runs.iterdir() if is_job_id(directory.name)]
    orphans = [run_dir for run_dir in job_dirs if store.job_state(run_dir.job_id) is None]
    for run_dir in sorted(orphans, key=_submitted_at):
        if rebuild_all or run_dir.intent.exists():
            _rebuild(run_dir, store)
        else:
            shutil.rmtree(run_dir.root, ignore_errors=True)
    store.count_start()


def _rebuild(run_dir: RunDir, store: Store) -> None:
    job = rebuilt_job(run_dir)
    if job is None:
        path = str(run_dir.root)
        _log.warning("No job can be rebuilt from this directory: spec.json is missing or unreadable", path=path)
        return
    store.add_job(job)
    _log.warning("A job without a row was rebuilt from its run directory", job=job.id, name=job.name)


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
    job = new_job(run_dir.job_id, spec, created_at=_submitted_at(run_dir), intent=JobIntent.HOLD)
    if intent is not None:
        job.state = JobState.STARTING
        job.intent, job.run, job.devices = intent.intent, intent.run, intent.devices
        job.max_failures, job.started_at = intent.max_failures, job.created_at
    return job


def _submitted_at(run_dir: RunDir) -> float:
    """When the spec was written, in seconds since the epoch."""
    for path in (run_dir.spec, run_dir.root):
        with suppress(OSError):
            return path.stat().st_mtime
    return 0.0
