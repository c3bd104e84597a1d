"""Recovery at startup: leftovers are removed, lost rows rebuilt from run directories, deleted runs removed."""

import shutil
from contextlib import suppress
from typing import Any

import structlog

from rekindle.contract.files import read_json
from rekindle.contract.job import JobSpec, RunIntent
from rekindle.contract.locks import lock_holder
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.access.permissions import PERSON
from rekindle_service.config.home import Home, is_job_id
from rekindle_service.config.unix_users import server_user
from rekindle_service.jobs.packaging.bundles import Bundles
from rekindle_service.jobs.submitter import new_job
from rekindle_service.store import Store
from rekindle_service.store.tables import Job

_log = structlog.get_logger(__name__)


def recover_on_startup(home: Home, store: Store) -> None:
    """Once, when a server starts and before it accepts requests.

    Partial submissions and deletions of a killed server are removed. A run directory without a row is a submission
    that was never confirmed, or remains of a lost database: at the first start with a new database, or if the job has
    ever started, its row is rebuilt; no training is removed because its row is missing.
    """
    Bundles(home).remove_partial()
    rebuild_all = store.starts() == 0
    orphans = []
    for directory in home.runs.iterdir():
        if directory.name.startswith((".new-", ".deleted-")):
            shutil.rmtree(directory, ignore_errors=True)
        elif is_job_id(directory.name) and store.job_state(directory.name) is None:
            orphans.append(RunDir(directory))
    for run_dir in sorted(orphans, key=_submitted_at):
        if rebuild_all or run_dir.intent.exists():
            _rebuild(run_dir, store)
        else:
            shutil.rmtree(run_dir.root, ignore_errors=True)
    store.count_start()


def collect_bundles(home: Home, store: Store) -> None:
    """Remove uploaded code that no job refers to and that was not used lately."""
    for bundle_id in Bundles(home).gc(store.bundles_in_use()):
        _log.info("An unused bundle was removed", bundle=bundle_id)


def remove_run(home: Home, job_id: str) -> bool:
    """Remove the run directory of a deleted job; False while its keeper still lives."""
    run_dir = home.run_dir(job_id)
    if lock_holder(run_dir.keeper_lock) is not None:
        return False
    free_memory(run_dir)
    removed = home.deleted_run(job_id)
    if run_dir.root.exists():
        run_dir.root.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)
    return True


def free_memory(run_dir: RunDir) -> None:
    """Remove a job's snapshots in shared memory and its temporary files: nothing else does when no keeper ends it."""
    if lock_holder(run_dir.keeper_lock) is None:
        shutil.rmtree(run_dir.memory, ignore_errors=True)
        shutil.rmtree(run_dir.private_tmp, ignore_errors=True)


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
    job.owner = _owner(stored_spec)
    if intent is not None:
        job.state = JobState.STARTING
        job.intent, job.run, job.devices = intent.intent, intent.run, intent.devices
        job.max_failures, job.started_at = intent.max_failures, job.created_at
    return job


def _owner(stored_spec: dict[str, Any]) -> str:
    """Who submitted the job; version 0.1.0 knew only the user who runs the server."""
    owner = stored_spec.get("owner")
    return owner if isinstance(owner, str) and PERSON.fullmatch(owner) else server_user()


def _submitted_at(run_dir: RunDir) -> float:
    """When the spec was written, in seconds since the epoch."""
    for path in (run_dir.spec, run_dir.root):
        with suppress(OSError):
            return path.stat().st_mtime
    return 0.0
