"""Rows and machines for tests; every column that a test cares about is given by it."""

import itertools
from dataclasses import fields
from pathlib import Path
from typing import Any

from migrated import provide_database
from rekindle.contract.files import write_json
from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import TargetKind
from rekindle_service.config.home import Home
from rekindle_service.jobs.submitter import new_job
from rekindle_service.machine.slots import Link, Machine, Slot
from rekindle_service.store import Store
from rekindle_service.store.tables import Experiment, Job
from rekindle_service.submission import Submission

_numbers = itertools.count(1)


def job_id(number: int) -> str:
    return f"job{number:07d}"


def a_job(**columns: Any) -> Job:
    """Options of the spec may be given as columns are."""
    number = next(_numbers)
    options = {field.name: columns.pop(field.name) for field in fields(JobSpec) if field.name in columns}
    defaults = {"name": f"job {number}", "kind": TargetKind.SCRIPT, "target": "train.py", "python": "/usr/bin/python3"}
    spec = JobSpec(**{**defaults, "device": "cpu", **options})
    return new_job(columns.pop("id", job_id(number)), spec, **{"number": number, "created_at": 1.0, **columns})


def a_submission(code: Path | None = None, **options: Any) -> Submission:
    """A submission of a script in ``code``, unless ``options`` of the spec say otherwise."""
    defaults = {"name": "n", "kind": TargetKind.SCRIPT, "target": "train.py", "python": "/usr/bin/python3"}
    return Submission(JobSpec(**{**defaults, **options}), code)


def an_experiment(experiment_id: str, **columns: Any) -> Experiment:
    return Experiment(**{"id": experiment_id, "name": "lr", "title": "", "created_at": 1.0, **columns})


def cpu_machine(slots: int) -> Machine:
    return Machine(tuple(Slot(f"cpu:{index}", "cpu", index) for index in range(slots)))


def gpu_machine(gpus: int, links: dict[tuple[int, int], str] | None = None) -> Machine:
    slots = tuple(Slot(f"cuda:{index}", "cuda", index, uuid=f"GPU-{index:04d}") for index in range(gpus))
    joined = tuple(Link(f"cuda:{one}", f"cuda:{two}", kind) for (one, two), kind in (links or {}).items())
    return Machine(slots, joined)


def open_store(root: Path) -> Store:
    store = Store(provide_database(root / "rekindle.db"))
    store.migrate()
    return store


def queued_job(store: Store, home: Home, **columns: Any) -> Job:
    """A job as ``Submitter`` leaves it, with its run directory."""
    job = a_job(**columns)
    run_dir = home.run_dir(job.id)
    run_dir.code.mkdir(parents=True)
    write_json(run_dir.spec, {"job_id": job.id, **job.spec.to_json()})
    return store.add_job(job)


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())
