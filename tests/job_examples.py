"""Rows and machines for tests; every column that a test cares about is given by it."""

import itertools
from pathlib import Path
from typing import Any

from rekindle.contract.durable import write_json
from rekindle.contract.spec import TargetKind
from rekindle_service.home import Home
from rekindle_service.machine.devices import Link, Machine, Slot
from rekindle_service.rows import Experiment, Job
from rekindle_service.store import Store
from rekindle_service.submitter import spec_of

_numbers = itertools.count(1)


def job_id(number: int) -> str:
    return f"job{number:07d}"


def a_job(**columns: Any) -> Job:
    number = next(_numbers)
    defaults = {
        "id": job_id(number),
        "number": number,
        "name": f"job {number}",
        "kind": TargetKind.SCRIPT,
        "target": "train.py",
        "python": "/usr/bin/python3",
        "device": "cpu",
        "min_ranks": 1,
        "max_ranks": 1,
        "cadence": {"every_steps": None, "every_seconds": None, "every_epochs": None, "keep": 3},
        "created_at": 1.0,
    }
    return Job(**{**defaults, **columns})


def an_experiment(experiment_id: str, **columns: Any) -> Experiment:
    return Experiment(**{"id": experiment_id, "name": "lr", "title": "", "created_at": 1.0, **columns})


def cpu_machine(slots: int) -> Machine:
    return Machine(tuple(Slot(f"cpu:{index}", "cpu", index) for index in range(slots)))


def gpu_machine(gpus: int, links: dict[tuple[int, int], str] | None = None) -> Machine:
    slots = tuple(Slot(f"cuda:{index}", "cuda", index, uuid=f"GPU-{index:04d}") for index in range(gpus))
    joined = tuple(Link(f"cuda:{one}", f"cuda:{two}", kind) for (one, two), kind in (links or {}).items())
    return Machine(slots, joined)


def open_store(root: Path) -> Store:
    store = Store(root / "rekindle.db")
    store.migrate()
    return store


def queued_job(store: Store, home: Home, **columns: Any) -> Job:
    """A job as ``Submitter`` leaves it, with its run directory."""
    job = a_job(**columns)
    run_dir = home.run_dir(job.id)
    run_dir.code.mkdir(parents=True)
    write_json(run_dir.spec, spec_of(job).to_json())
    return store.add_job(job)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
