"""What must not depend on how many jobs there were: counted totals, and queries that read no row of the past."""

import random
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from counted_again import recount
from job_examples import a_job, an_experiment, open_store
from rekindle.contract.job import RunIntent
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.states import TERMINAL, TRANSITIONS, JobIntent, JobState
from rekindle_service.store import Store
from rekindle_service.store.job_queries import JobConditions, Mark
from rekindle_service.store.projection import RowChanges
from rekindle_service.store.tables import Job


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path)
    yield store
    store.close()


def figures(store: Store) -> tuple[Any, ...]:
    """Everything in counters, and the goodput of ended jobs: that of running ones changes with time."""
    return store.totals(), store.queue.count()


def counted_again(store: Store) -> tuple[Any, ...]:
    with store.writing() as session:
        recount(session)
    return figures(store)


def end_of_attempt(number: int, klass: str) -> AttemptInfo:
    outcome = Outcome(OutcomeClass(klass), "It has ended.")
    return AttemptInfo(number, run=1, started_at=1.0, ended_at=2.0, outcome=outcome)


def random_change(store: Store, job: Job, chance: random.Random) -> None:
    """What may happen to a job in its life."""
    to = chance.choice([*sorted(TRANSITIONS[job.state]), None, None])
    if to is not None:
        ended = {"ended_at": 50.0} if to in TERMINAL else {"ended_at": None}
        store.transition(job.id, to, expected={job.state}, reason="", started_at=chance.choice([None, 10.0]), **ended)
    elif chance.random() < 0.3:
        outcome = chance.choice(["success", "oom", "hang"])
        attempt = end_of_attempt(chance.randint(1, 3), outcome)
        columns = {"restarts": chance.randint(0, 3), "goodput": chance.choice([None, 0.25, 1.0])}
        store.apply_journal(job, RowChanges(0, columns=columns, attempts={attempt.number: attempt}))
    elif chance.random() < 0.3:
        store.update_progress(job.id, world_size=chance.randint(1, 8), goodput=chance.random())
    elif chance.random() < 0.5 and job.state in TERMINAL:
        store.delete_job(job.id)
    elif chance.random() < 0.2:
        store.recovery.restart_from_journal(job.id, RunIntent(JobIntent.RUN, 1, [], 3), "older")
    elif chance.random() < 0.2:
        store.recovery.withdraw([job.id])


def test_totals_are_those_of_the_rows_whatever_has_happened_to_them(store: Store) -> None:
    chance = random.Random(7)
    for step in range(400):
        if step % 5 == 0:
            store.add_job(a_job())
        jobs = store.lists.jobs(limit=200)
        if jobs:
            random_change(store, chance.choice(jobs), chance)
    with store.reading() as session:
        unfinished = session.connection().exec_driver_sql("UPDATE job SET started_at = NULL WHERE ended_at IS NULL")
        assert unfinished.rowcount
        session.connection().commit()
    by_state = Tally(job.state for job in store.lists.jobs(limit=200))
    kept = figures(store)
    assert kept[0].jobs == dict(by_state)
    assert kept[1] == by_state[JobState.QUEUED]
    assert kept == counted_again(store)


def test_what_deleted_jobs_have_added_up_to_remains(store: Store) -> None:
    job = store.add_job(a_job(state=JobState.FAILED, restarts=2))
    store.apply_journal(job, RowChanges(0, attempts={number: end_of_attempt(number, "oom") for number in (1, 2)}))
    before = store.totals()
    assert store.delete_job(job.id)
    after = store.totals()
    assert (after.jobs, after.restarts, after.endings) == ({}, before.restarts, before.endings)
    assert (after.restarts, after.endings) == (2, {"oom": 2})


# --- what is read


def plan_of(store: Store, query: Callable[[Store], object]) -> list[str]:
    """How SQLite carries out the statements of a query."""
    statements: list[tuple[str, Any]] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool) -> None:
        statements.append((statement, parameters))

    event.listen(store._file.engine, "before_cursor_execute", note)
    try:
        result = query(store)
        list(result) if isinstance(result, Iterator) else None
    finally:
        event.remove(store._file.engine, "before_cursor_execute", note)
    with store.reading() as session:
        connection = session.connection()
        return [
            str(row[3])
            for statement, parameters in statements
            if statement.startswith(("SELECT", "UPDATE", "DELETE"))
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)
        ]


def first_holding(store: Store) -> list[Job]:
    """Read what the first call reads."""
    store._holding = None
    return store.holding()


QUERIES: dict[str, Callable[[Store], object]] = {
    "totals": lambda store: store.totals(),
    "holding slots": lambda store: first_holding(store),
    "queued to drain": lambda store: store.queue.with_intent(JobIntent.DRAIN, 200),
    "queued to cancel": lambda store: store.queue.with_intent(JobIntent.CANCEL, 200, new=True),
    "queue": lambda store: store.queue.jobs(),
    "queue length": lambda store: store.queue.count(),
    "queue by owner": lambda store: store.queue.by_owner(),
    "queue, first page": lambda store: store.queue.keys(
        readable_by=None, owner=None, positioned=True, after=None, limit=50
    ),
    "queue, last page": lambda store: store.queue.keys(
        readable_by=None, owner=None, positioned=False, after=5, limit=50
    ),
    "queue of an owner": lambda store: store.queue.keys(
        readable_by=None, owner="ann", positioned=False, after=None, limit=50
    ),
    "positions of an owner": lambda store: store.queue.keys(owner="ann", positioned=True, limit=50),
    "positions that may be read": lambda store: store.queue.keys(readable_by="ann", positioned=True, limit=50),
    "failures of everybody": lambda store: store.lists.failures(20, None),
    "failures of an owner": lambda store: store.lists.failures(20, "ann"),
    "held jobs": lambda store: store.lists.held(20, None),
    "jobs without a position": lambda store: store.lists.unplaced(20, None),
    "what has ended": lambda store: store.lists.done(20, None),
    "what an owner has ended": lambda store: store.lists.done(20, "ann"),
    "ended experiments": lambda store: store.lists.ended_experiments(20, None),
    "durations": lambda store: store.queue.durations(),
    "state of a job": lambda store: store.job_state("job0000001"),
    "changes": lambda store: store.feed.changes(5),
    "tombstones": lambda store: store.feed.tombstones(5),
    "latest jobs": lambda store: store.lists.jobs(),
    "keys of failed jobs": lambda store: store.lists.keys(state=JobState.FAILED, before=50),
    "failed jobs": lambda store: store.lists.jobs(state=JobState.FAILED, before=50),
    "failed jobs of an owner": lambda store: store.lists.jobs(state=JobState.FAILED, owner="ann"),
    "jobs that may be read": lambda store: store.lists.jobs(readable_by="ann", name_part="x"),
    "jobs of a name": lambda store: store.lists.jobs(name="x"),
    "jobs of an experiment": lambda store: store.lists.jobs(experiment_id="x", limit=200),
    "tagged jobs": lambda store: store.lists.jobs(JobConditions(tags=frozenset({"x"}))),
    "held jobs of an experiment": lambda store: store.lists.jobs(
        JobConditions(marks=frozenset({Mark.HELD}), experiment="lr", owner="ann")
    ),
    "archived failures": lambda store: store.lists.jobs(
        JobConditions(states=frozenset({JobState.FAILED}), marks=frozenset({Mark.ARCHIVED}))
    ),
    "jobs that ended": lambda store: store.lists.jobs(JobConditions(states=TERMINAL), before=50),
    "what has shown its memory": lambda store: store.lists.jobs(
        JobConditions(frozenset({JobState.SUCCEEDED, JobState.FAILED})), name_part="x", limit=20
    ),
    "part of a name": lambda store: store.lists.jobs(name_part="x"),
    "job of this name, or whose id starts so": lambda store: store.lookup.matches("zzzz", None),
    "job of this number": lambda store: store.lookup.matches("#3", "ann"),
    "names to complete": lambda store: store.lookup.starting_with(a_job().name[:2], None, 50),
    "names to suggest": lambda store: store.lookup.recent_names(None),
    "names to suggest to one person": lambda store: store.lookup.recent_names("ann"),
    "experiment": lambda store: store.experiments.jobs("x"),
    "events of a job": lambda store: store.events("job0000001"),
    "to be delivered": lambda store: store.feed.events(5, 100),
}


def test_no_query_reads_the_rows_of_other_jobs_or_sorts_them(store: Store) -> None:
    store.experiments.add(an_experiment("x"), [a_job(experiment_id="x"), a_job(experiment_id="x")])
    small = ("SCAN counter", "SCAN experiment")  # tables that do not grow with the jobs
    findings = []
    for name, query in QUERIES.items():
        steps = plan_of(store, query)
        scans = [step for step in steps if step.startswith("SCAN") and "COVERING INDEX" not in step]
        bad = [step for step in scans if not step.startswith(small)]
        bad += [step for step in steps if "TEMP B-TREE FOR ORDER BY" in step]
        findings += [f"{name}: {step}" for step in bad or ([] if steps else ["no statement"])]
    assert findings == []
