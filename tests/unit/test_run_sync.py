import dataclasses
import json

import pytest

from job_examples import a_job, open_store
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.rank_records import RankState, RankStatus
from rekindle.contract.states import JobState
from rekindle_service.config.home import Home
from rekindle_service.scheduler.run_sync import RunSync, progress_columns
from rekindle_service.store.projection import RowChanges

STATUS = RankStatus(0, 0, 1, "h", 5, 6, "cpu", RankState.RUNNING)


def columns(**status):
    return progress_columns(dataclasses.replace(STATUS, **status))


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"step": 25, "steps": 100, "steps_per_second": 5.0}, {"progress": 0.25, "eta_seconds": 15.0}),
        ({"step": 120, "steps": 100, "steps_per_second": 1.0}, {"progress": 1.0, "eta_seconds": 0.0}),
        ({"step": 1, "steps": 2, "steps_per_second": None}, {"eta_seconds": None}),
        ({"step": 1, "steps": 2, "steps_per_second": 0.0}, {"eta_seconds": None}),
        ({"step": 1, "steps": 1 << 52, "steps_per_second": 1e-299}, {"eta_seconds": None}),
        ({"notice": "x" * 10_000}, {"notice": "x" * 500}),
    ],
    ids=[
        "a quarter done",
        "more steps than expected",
        "no speed",
        "no steps a second",
        "hardly any speed",
        "long notice",
    ],
)
def test_progress_and_the_time_left_follow_from_steps_and_speed(status, expected):
    assert expected.items() <= columns(**status).items()


def test_what_a_script_does_not_report_stays_as_it_was():
    assert columns() == {"phase": None, "notice": None, "steps_per_second": None, "eta_seconds": None}
    assert "progress" not in columns(step=0, steps=0)
    assert "step" not in columns(phase="restore")


@pytest.mark.parametrize(
    "change",
    ['"step": "many"', '"step": -1', '"step": 99999999999999999999', '"steps_per_second": NaN', '"notice": ["x"]',
     '"epoch": 1e999', '"saving_seconds": -1'],
)  # fmt: skip
def test_a_status_that_no_row_can_hold_changes_nothing(tmp_path, change):
    home = Home(tmp_path)
    status = home.run_dir("abcdefghij").attempt(1).rank(0).status
    status.parent.mkdir(parents=True)
    status.write_text(json.dumps(STATUS.to_json())[:-1] + f", {change}}}")
    assert RunSync(None, home)._read_progress("abcdefghij", 1) is None


def notice_at(tmp_path, sizes, spec, **status):
    """Notice of a running job; ``sizes``: the ranks of each of its attempts."""
    home, store = Home(tmp_path), open_store(tmp_path)
    try:
        job = store.add_job(a_job(state=JobState.RUNNING, attempt=len(sizes), **spec))
        attempts = {
            number: AttemptInfo(number, run=1, started_at=float(number), world_size=size)
            for number, size in enumerate(sizes, start=1)
        }
        job = store.apply_journal(job, RowChanges(0, attempts=attempts))
        file = home.run_dir(job.id).attempt(len(sizes)).rank(0).status
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(dataclasses.replace(STATUS, **status).to_json()))
        RunSync(store, home).read_progress(job)
        return store.job(job.id).notice
    finally:
        store.close()


ELASTIC = {"min_ranks": 1, "max_ranks": 4}


def test_a_script_without_a_run_is_warned_when_an_attempt_has_another_size(tmp_path):
    notice = notice_at(tmp_path, [4, 4, 1], ELASTIC)
    assert notice.startswith("Attempt 3 runs on 1 rank, the first one ran on 4.")
    assert "0.25 times as large" in notice
    assert "divide the batch by WORLD_SIZE or scale the learning rate" in notice


@pytest.mark.parametrize(
    ("sizes", "spec", "status"),
    [
        ([4], ELASTIC, {}),
        ([2, 2], ELASTIC, {}),
        ([4, 2], {"min_ranks": 4, "max_ranks": 4}, {}),
        ([4, 2], ELASTIC, {"snapshot_policy": "auto"}),
    ],
    ids=["first attempt", "same size", "not elastic", "a Run, which keeps the global batch"],
)
def test_nobody_is_warned_of_a_size_that_changes_nothing(tmp_path, sizes, spec, status):
    assert notice_at(tmp_path, sizes, spec, **status) is None


@pytest.mark.parametrize(("named", "stays"), [("journal.jsonl was cut off", True), ("Saving fails", False)])
def test_what_is_wrong_with_the_journal_stays_in_the_notice_while_the_job_runs(tmp_path, named, stays):
    assert notice_at(tmp_path, [4], {"notice": named}, step=5) == (named if stays else None)
