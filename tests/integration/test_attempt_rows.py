"""Rows of attempts hold all that the journal says, wherever the server stopped reading and whoever wrote them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, event

from job_examples import a_job, open_store
from rekindle.contract.run_dir.attempt_history import AttemptHistory, AttemptInfo
from rekindle.contract.run_dir.journal import read_journal
from rekindle.contract.states import JobState
from rekindle_service.store import Store
from rekindle_service.store.projection import RowChanges, project

KILLED = {"class": "signal", "message": "Rank 1 was killed.", "rank": 1, "signal": "SIGKILL", "evidence": {"a": [1]}}
DONE = {"class": "success", "message": "Every rank finished."}
KEEPER = {"pid": 1, "start_time": 2, "boot_id": "of-monday"}
_OF_ATTEMPTS: list[dict[str, Any]] = [
    {"type": "attempt_started", "run": 1, "world_size": 2, "devices": ["cpu:0", "cpu:1"], "hosts": ["n1", "n2"]},
    {"type": "ranks_running", "ranks": [{"rank": 1, "pid": 7, "start_time": 9}]},
    {"type": "resumed", "step": 40},
    {"type": "checkpoint_loaded", "path": "last.pt"},
    {"type": "stop_requested", "ending": "drain"},
    {"type": "rank_exited", "rank": 0, "exit_code": 3},
    {"type": "rank_exited", "rank": 1, "signal": "SIGTERM", "killed": True},
    {"type": "straggler", "rank": 1, "share": 0.75},
    {"type": "straggler", "rank": 1, "share": None},
    {"type": "stalled", "sentence": "rank 1 sleeps", "since": 2.5, "hung_at": 30.0, "rank": 1},
    {"type": "stalled", "sentence": None},
    {"type": "fault_injected", "fault": "kill", "rank": 1},
    {"type": "retry_decided", "reason": "failure 1 of 3", "next_try_at": 12.0},
    {"type": "attempt_ended", "outcome": KILLED, "last_step": 57, "snapshot_step": 50, "progress": "known",
     "running_seconds": 3.5, "loaded": True, "saving_seconds": 0.25},
    {"type": "attempt_ended", "outcome": None},
]  # fmt: skip
_OF_JOB: list[dict[str, Any]] = [
    {"type": "keeper_started", "run": 1, "keeper": KEEPER},
    {"type": "keeper_started", "run": 2, "keeper": {**KEEPER, "boot_id": "of-friday"}, "launch": 2},
    {"type": "job_ended", "run": 1, "state": "failed", "reason": "3 failures in a row"},
    {"type": "attempt_started"},
    {"type": "something new"},
]
_RECORDS = st.sampled_from(_OF_JOB) | st.builds(
    lambda record, attempt, launch: {**record, "attempt": attempt, "launch": launch},
    st.sampled_from(_OF_ATTEMPTS), st.integers(1, 3), st.sampled_from([None, 1, 2]),
)  # fmt: skip


def write(path: Path, *records: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        begin = path.stat().st_size
        file.writelines(json.dumps({"at": float(begin + at), **each}) + "\n" for at, each in enumerate(records))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = open_store(tmp_path_factory.mktemp("rows"))
    yield store
    store.close()


@example(parts=[([{**_OF_ATTEMPTS[0], "attempt": 1}, _OF_JOB[2]], False), ([{**_OF_ATTEMPTS[0], "attempt": 2}], False),
                ([{**_OF_JOB[2], "run": 2}], False)])  # fmt: skip  # a run that this server did not begin
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.tuples(st.lists(_RECORDS, max_size=6), st.booleans()), min_size=1, max_size=6))
def test_rows_are_the_fold_of_the_journal_wherever_reading_stopped(
    store: Store, tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[list[dict[str, Any]], bool]]
) -> None:
    path = tmp_path_factory.mktemp("run") / "journal.jsonl"
    job = store.add_job(a_job(state=JobState.RUNNING, run=1))
    for records, is_killed in [*parts, ([], False)]:  # the server is killed before it has written its rows
        write(path, *records)
        changes = project(job, store.detailed_attempts(job.id), read_journal(path, job.journal_offset))
        if changes is not None and not is_killed:
            job = store.apply_journal(job, changes) or job
    history = AttemptHistory.read(path)
    assert store.detailed_attempts(job.id) == [history.attempts[number] for number in sorted(history.attempts)]
    assert store.attempt_numbers(job.id) == sorted(history.attempts)
    assert job.last_keeper in ({}, history.last_keeper)


STARTED = {**_OF_ATTEMPTS[0], "attempt": 1, "launch": 1}
ENDED = {"type": "attempt_ended", "attempt": 1, "outcome": DONE, "launch": 1}
OTHER_LAUNCH = {**_OF_JOB[1], "run": 1}


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("then", "ended"), [((OTHER_LAUNCH, ENDED), False), ((ENDED, OTHER_LAUNCH), True)], ids=["late", "in time"]
)
def test_a_record_counts_only_before_the_first_one_of_a_later_launch(
    store: Store, tmp_path: Path, then: tuple[dict[str, Any], ...], ended: bool, at_once: bool
) -> None:
    path = tmp_path / "journal.jsonl"
    job = store.add_job(a_job(state=JobState.RUNNING, run=1))
    for records in [(STARTED, *then)] if at_once else [(each,) for each in (STARTED, *then)]:
        write(path, *records)
        changes = project(job, store.detailed_attempts(job.id), read_journal(path, job.journal_offset))
        assert changes is not None
        applied = store.apply_journal(job, changes)
        assert applied is not None
        job = applied
    (attempt,) = store.attempts(job.id)
    assert (attempt.ended_at is not None) is ended


def test_a_list_does_not_load_what_each_rank_did(store: Store) -> None:
    job = store.add_job(a_job(state=JobState.RUNNING, run=1))
    assert store.apply_journal(job, RowChanges(1, attempts={1: AttemptInfo(1, stragglers={3: 0.5})})) is not None
    statements: list[str] = []
    event.listen(Engine, "before_cursor_execute", note := lambda *call: statements.append(call[2]))
    try:
        listed, detailed = store.attempts(job.id), store.detailed_attempts(job.id)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    first, second = [statement for statement in statements if "FROM attempt" in statement]
    assert ("detail" in first, "detail" in second) == (False, True)
    assert not hasattr(listed[0], "stragglers")
    assert detailed[0].stragglers == {3: 0.5}
