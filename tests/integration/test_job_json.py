"""The JSON of jobs in lists: of unchanged jobs it is kept, and what has changed is never shown as it was."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from job_examples import a_job, open_store
from rekindle.contract.job_options import SlurmOptions
from rekindle.contract.states import JobState
from rekindle_service.api import shared_results
from rekindle_service.api.routes.job_routes import job_public
from rekindle_service.api.shared_results import JobJson, spliced
from rekindle_service.schemas.fields import Page
from rekindle_service.schemas.job_json import JobPublic
from rekindle_service.store import Store
from rekindle_service.store.tables import Job


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = open_store(tmp_path)
    yield store
    store.close()


class Rendering:
    """Notes which jobs are rendered."""

    def __init__(self) -> None:
        self.rendered: list[str] = []
        self.jobs = JobJson()

    def __call__(self, job: Job) -> JobPublic:
        self.rendered.append(job.name)
        return job_public(job)

    def listed(self, store: Store) -> list[dict[str, Any]]:
        return [json.loads(each) for each in self.jobs.read(store, store.lists.keys(), self).values()]


def test_a_job_is_rendered_again_only_after_a_change(store: Store) -> None:
    first, _ = (store.add_job(a_job(name=name)) for name in ("a", "b"))
    rendering = Rendering()
    assert [job["name"] for job in rendering.listed(store)] == ["b", "a"]
    assert sorted(rendering.rendered) == ["a", "b"]
    changes = (
        lambda: store.update_progress(first.id, step=7),
        lambda: store.patch_job(first.id, note="seen"),
        lambda: store.transition(first.id, JobState.STARTING, expected={JobState.QUEUED}, reason=""),
    )
    for change in changes:
        rendering.rendered.clear()
        assert change() is not None
        row = store.job(first.id)
        assert rendering.listed(store)[1] == json.loads(job_public(row).model_dump_json())
        assert rendering.rendered == ["a"]


def test_a_slurm_job_that_has_ended_is_the_same_in_a_list_whenever_it_is_read(store: Store) -> None:
    row = store.add_job(a_job(slurm=SlurmOptions(), state=JobState.FAILED))
    excluded = {"n1": {"reason": "no torch", "until": 1.0, "run": 1}}
    assert store.update_progress(row.id, slurm={"excluded": excluded}) is not None
    (listed,) = Rendering().listed(store)
    assert listed["slurm"]["excluded"] == {"n1": "no torch"}


def test_a_job_that_was_deleted_after_the_keys_were_read_is_missing(store: Store) -> None:
    kept, gone = store.add_job(a_job(name="kept")), store.add_job(a_job(name="gone", state=JobState.FAILED))
    rendering = Rendering()
    keys = store.lists.keys()
    assert store.delete_job(gone.id)
    assert list(rendering.jobs.read(store, keys, rendering)) == [kept.id]


def test_more_jobs_than_are_kept_are_listed_all_the_same(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_results, "_KEPT", 2)
    for number in range(5):
        store.add_job(a_job(name=str(number)))
    rendering = Rendering()
    for _ in range(2):
        assert [job["name"] for job in rendering.listed(store)] == ["4", "3", "2", "1", "0"]


def test_items_go_into_the_list_of_the_response_whatever_text_they_contain() -> None:
    items = [b'{"name":"\\"items\\":[]"}', b"{}"]
    body = spliced(Page[JobPublic](items=[], next='"items":[]'), items=items).body
    assert json.loads(body) == {"items": [{"name": '"items":[]'}, {}], "next": '"items":[]'}
