"""Rows of many jobs, as a server of some years has them, written into the database of a home that no server uses."""

import random
import sys
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from sqlalchemy import insert, update
from sqlmodel import col

sys.path.insert(0, str(Path(__file__).parents[1]))

from counted_again import recount
from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import TargetKind
from rekindle.contract.states import TERMINAL, JobState
from rekindle_service.config.home import Home, new_job_id
from rekindle_service.store import Store
from rekindle_service.store.tables import Attempt, Counter, Event, Experiment, Job

_OWNERS = ("ann", "ben", "eve", "joe", "kim", "max", "sue")  # and zoe, who has five jobs
_TRIALS = 50  # of an experiment; every fifth job is in one
_LARGE = 5_000  # jobs of the largest experiment
_ENDINGS = {JobState.SUCCEEDED: "success", JobState.FAILED: "user_error", JobState.CANCELLED: "cancelled"}
_BATCH = 2000
_JOB = Job(id="", name="", priority=0, max_failures=3, created_at=0.0).model_dump(exclude={"spec"})
_ATTEMPT = Attempt(job_id="", number=1, run=1, started_at=0.0).model_dump()


def write_rows(home_path: Path, queued: int, finished: int) -> int:
    """Returns how many rows were written. The finished jobs are older than the queued ones."""
    home, count = Home(home_path), 0
    store = Store(home.database)
    random.seed(1)
    try:
        first, version = store.reserve_numbers(), store.feed.version() + 1
        rows = _rows(first, version, finished, queued, _experiments(store, finished))
        last = first - 1
        while batch := list(islice(rows, _BATCH)):
            jobs, attempts, events = (list(group) for group in zip(*batch, strict=True))
            for job in jobs:
                home.run_dir(job["id"]).root.mkdir()
            with store.writing() as session:
                for table, found in ((Job, jobs), (Attempt, chain(*attempts)), (Event, chain(*events))):
                    if rows_of_table := list(found):
                        session.connection().execute(insert(table), rows_of_table)
                    count += len(rows_of_table)
            last, version = jobs[-1]["number"], jobs[-1]["version"]
        _set_counters(store, number=last, version=version)
    finally:
        store.close()
    return count


def _set_counters(store: Store, **values: int) -> None:
    with store.writing() as session:
        for name, value in values.items():
            session.execute(update(Counter).where(col(Counter.name) == name).values(value=value))
        recount(session)


def _experiments(store: Store, finished: int) -> list[str]:
    """Ids, the largest first."""
    ids = [new_job_id() for _ in range(1 + finished // (5 * _TRIALS))]
    for experiment_id in reversed(ids):
        row = Experiment(id=experiment_id, name="lr", title="Learning rates", created_at=time.time(), owner="ann")
        store.experiments.add(row, [])
    return ids


def _rows(
    number: int, version: int, finished: int, queued: int, experiments: list[str]
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]], list[dict[str, Any]]]]:
    """The row, the attempts and the events of each job."""
    began = time.time() - 100.0 * finished
    members = iter([experiments[0]] * _LARGE + [each for each in experiments[1:] for _ in range(_TRIALS)])
    for index in range(finished + queued):
        state = JobState.QUEUED if index >= finished else random.choice(list(_ENDINGS))
        experiment = next(islice(members, 1), None) if index % 5 == 0 or index < _LARGE else None
        job = _job(index, number + index, state, began + 100.0 * index, experiment)
        events = _events(job, version, state)
        version = events[-1]["id"] + 1
        job["version"] = events[-1]["id"]
        yield job, _attempts(job), events


def _job(index: int, number: int, state: JobState, created_at: float, experiment: str | None) -> dict[str, Any]:
    name = "rare" if index % 20_000 == 7 else f"resnet-{index % 500}"
    owner = "zoe" if index % 20_000 == 9 else random.choice(_OWNERS)
    code = {"path": f"/home/{owner}/project"}
    args = ["--lr", "0.1", "--epochs", "90", "--data", "/datasets/imagenet", "--seed", str(index)]
    needs = {"min_ranks": 2, "max_ranks": 2, "device": "cpu"}
    spec = JobSpec(
        name=name, kind=TargetKind.SCRIPT, target="train.py", python="/usr/bin/python3", args=args, code=code, **needs
    )
    columns: dict[str, Any] = {"number": number, "owner": owner, "created_at": created_at, "experiment_id": experiment}
    if experiment is not None:
        columns["trial"] = {"parameters": {"lr": 0.1 * index}, "repeat": 0}
    if state in TERMINAL:
        seconds = random.uniform(10, 10_000)
        columns |= {"state": state, "attempt": 1, "run": 1, "world_size": 2, "epoch": 89, "epochs": 90, "step": 9_000}
        columns |= {"steps": 9_000, "progress": 1.0, "snapshot_step": 9_000, "steps_per_second": 1.7, "goodput": 0.97}
        columns |= {"started_at": created_at + 5, "ended_at": created_at + 5 + seconds, "restarts": index % 3 == 0}
        columns["outcome"] = {"class": _ENDINGS[state], "message": "It has ended.", "retryable": False, "evidence": {}}
    return {**_JOB, "id": new_job_id(), "spec": spec, "name": name, "priority": 0, "max_failures": 3, **columns}


def _attempts(job: dict[str, Any]) -> list[dict[str, Any]]:
    if job["started_at"] is None:
        return []
    times = {"started_at": job["started_at"], "ranks_running_at": job["started_at"] + 4, "ended_at": job["ended_at"]}
    columns = {"job_id": job["id"], "outcome": job["outcome"], "last_step": 9_000, "world_size": 2}
    return [{**_ATTEMPT, **columns, **times}]


def _events(job: dict[str, Any], version: int, state: JobState) -> list[dict[str, Any]]:
    moves: list[tuple[str, str | None, str]] = [("submitted", None, "queued")]
    if state in TERMINAL:
        moves += [("state", "queued", "starting"), ("state", "starting", "running"), ("state", "running", state.value)]
    same = {"job_id": job["id"], "at": job["created_at"], "reason": "", "owner": None}
    return [
        {**same, "id": version + index, "kind": kind, "from_state": one, "to_state": two}
        for index, (kind, one, two) in enumerate(moves)
    ]
