"""One change of many jobs, in several transactions, and what happens to those in between."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from job_examples import a_job, open_store
from rekindle.contract.states import HOLDING_SLOTS, JobIntent, JobState
from rekindle_service.store import Store, job_store
from rekindle_service.store.tables import Job


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(job_store, "JOBS_AT_ONCE", 2)
    store = open_store(tmp_path)
    yield store
    store.close()


def test_every_job_that_has_not_ended_gets_the_intent_and_its_event(store: Store) -> None:
    jobs = [store.add_job(a_job()) for _ in range(5)]
    cancelled = store.transition(jobs[1].id, JobState.CANCELLED, expected={JobState.QUEUED}, reason="no more")
    before = store.queue_revision
    store.set_intents([*(job.id for job in jobs), "gone"], JobIntent.CANCEL)
    assert [store.job(job.id).intent for job in jobs] == ["cancel", "run", "cancel", "cancel", "cancel"]
    assert store.job(jobs[1].id).version == cancelled.version
    assert store.queue_revision - before == 3, "in parts"
    versions = [store.job(job.id).version for job in jobs if job is not jobs[1]]
    assert versions == sorted(set(versions))
    assert [event.id for job in jobs for event in store.events(job.id) if event.kind == "intent"] == versions
    store.set_intents([job.id for job in jobs], JobIntent.CANCEL)
    assert [store.job(job.id).version for job in jobs if job is not jobs[1]] == versions, "nothing has changed"


def test_jobs_in_the_expected_state_get_the_other_one_with_its_columns(store: Store) -> None:
    jobs = [store.add_job(a_job()) for _ in range(5)]
    store.transition(jobs[2].id, JobState.STARTING, expected={JobState.QUEUED}, reason="its turn")
    ids = [job.id for job in jobs]
    store.transition_all(ids, JobState.CANCELLED, expected={JobState.QUEUED}, reason="no more", ended_at=7.0)
    rows = [store.job(job.id) for job in jobs]
    assert [row.state for row in rows] == ["cancelled", "cancelled", "starting", "cancelled", "cancelled"]
    assert [row.ended_at for row in rows] == [7.0, 7.0, None, 7.0, 7.0]
    event = store.events(jobs[4].id)[-1]
    assert (event.from_state, event.to_state, event.reason, event.id) == (
        "queued",
        "cancelled",
        "no more",
        rows[4].version,
    )
    with pytest.raises(ValueError, match="no way leads from"):
        store.transition_all(ids, JobState.QUEUED, expected=HOLDING_SLOTS | {JobState.QUEUED}, reason="")


def test_an_error_in_the_middle_leaves_whole_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [store.add_job(a_job()) for _ in range(4)]
    move = job_store.move

    def fail_at_the_last(session: object, job: Job, *args: object, **kwargs: object) -> None:
        if job.id == jobs[3].id:
            raise RuntimeError("the server is killed")
        move(session, job, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(job_store, "move", fail_at_the_last)
    ids = [job.id for job in jobs]
    with pytest.raises(RuntimeError):
        store.transition_all(ids, JobState.CANCELLED, expected={JobState.QUEUED}, reason="no more")
    assert [store.job(job.id).state for job in jobs] == ["cancelled", "cancelled", "queued", "queued"]
    monkeypatch.undo()
    store.transition_all(ids, JobState.CANCELLED, expected={JobState.QUEUED}, reason="no more")
    assert {store.job(job.id).state for job in jobs} == {JobState.CANCELLED}
