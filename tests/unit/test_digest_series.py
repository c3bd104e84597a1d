"""Digests of a job: of the latest attempt, from whatever a script or a kill has left in the files."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from digest_files import NAMES, DigestWriter, series
from rekindle.contract.run_dir.digest_records import TensorKind
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.run_readers import digest_series


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    return RunDir(tmp_path / "run")


def steps(found: digest_series.DigestSeries) -> list[tuple[int, int]]:
    return [(each.step, each.attempt) for each in found.steps()]


def test_a_rank_shares_with_rank_0_what_it_has_not_written_itself(run_dir: RunDir) -> None:
    DigestWriter(run_dir).write([100, 200])
    at = series(run_dir, 2).at(200)
    assert (at.ranks, at.world_size, at.sharded) == ([0, 1], 2, False)
    zero, one = at.rank(0).tensors, at.rank(1).tensors
    assert one[TensorKind.PARAMETERS] == zero[TensorKind.PARAMETERS] == {"fc.weight": 20000, "fc.bias": 20001}
    assert (zero[TensorKind.BUFFERS], one[TensorKind.BUFFERS]) == ({"bn.mean": 20000}, {"bn.mean": 20001})
    assert at.rank(1).record.batch != at.rank(0).record.batch


def test_shards_are_recognized_by_parameters_of_every_rank(run_dir: RunDir) -> None:
    DigestWriter(run_dir, ranks=3, sharded=True).write([100])
    assert series(run_dir, 3).at(100).sharded


def test_a_later_attempt_supersedes_the_steps_that_it_repeats_and_one_attempt_can_be_read_alone(
    run_dir: RunDir,
) -> None:
    first, second = DigestWriter(run_dir), DigestWriter(run_dir, ranks=1, attempt=2)
    first.write([100, 200, 300])
    second.write([200], second.later(200, 0, random="other"))
    both = series(run_dir, 2, 1)
    assert steps(both) == [(100, 1), (200, 2), (300, 1)]
    assert both.at(200).rank(0).record.random == "other"
    assert [both.at(step).world_size for step in (100, 200)] == [2, 1]
    assert steps(series(run_dir, 2)) == [(100, 1), (200, 1), (300, 1)]


def test_torn_and_hostile_lines_are_skipped(run_dir: RunDir) -> None:
    writer = DigestWriter(run_dir, ranks=1)
    good = json.dumps(writer.record(100, 0).to_json())
    writer.append(0, json.dumps(NAMES.to_json()), good[: len(good) // 2] + good, "[1]", "{}", '{"step": -1}', "\xff\0")
    writer.append(0, json.dumps(writer.record(200, 0).to_json() | {"samples": "many"}), "[" * 5000)
    writer.append(0, json.dumps({"parameters": 3, "optimizer": [], "buffers": []}), good)
    torn = json.dumps(writer.record(300, 0).to_json())[:-9]
    with run_dir.attempt(1).rank(0).digests.open("a") as file:
        file.write(torn)
    found = series(run_dir, 1)
    assert steps(found) == [(100, 1)]
    assert found.at(100).rank(0).tensors[TensorKind.PARAMETERS] == {"fc.weight": 10000, "fc.bias": 10001}


def test_digests_that_do_not_fit_the_names_are_numbered_and_unreadable_ones_are_none(run_dir: RunDir) -> None:
    writer = DigestWriter(run_dir, ranks=1, names=replace(NAMES, buffers=["a", "b", "c"]))
    record = writer.record(100, 0)
    tensors = {**record.tensors, "gradients": "no base64", "parameters": record.tensors["buffers"], "other": "x"}
    writer.write([100], writer.later(100, 0, tensors=tensors))
    found = series(run_dir, 1).at(100).rank(0).tensors
    assert TensorKind.GRADIENTS not in found
    assert list(found[TensorKind.PARAMETERS]) == ["fc.weight", "fc.bias", "tensor 2"]


def test_names_may_change_within_a_file(run_dir: RunDir) -> None:
    DigestWriter(run_dir, ranks=1).write([100])
    DigestWriter(run_dir, ranks=1, names=replace(NAMES, parameters=["head.weight", "head.bias"])).write([200])
    found = series(run_dir, 1)
    names = [list(found.at(step).rank(0).tensors[TensorKind.PARAMETERS]) for step in (100, 200, 100)]
    assert [each[0] for each in names] == ["fc.weight", "head.weight", "fc.weight"]


def test_a_file_that_grows_is_read_on_and_a_step_that_comes_again_replaces_what_follows_it(run_dir: RunDir) -> None:
    writer = DigestWriter(run_dir, ranks=1)
    writer.write([100, 200])
    assert steps(series(run_dir, 1)) == [(100, 1), (200, 1)]
    writer.write([300])
    assert steps(series(run_dir, 1)) == [(100, 1), (200, 1), (300, 1)]
    writer.write([200], writer.later(200, 0, random="again"))
    found = series(run_dir, 1)
    assert steps(found) == [(100, 1), (200, 1)]
    assert found.at(200).rank(0).record.random == "again"
    run_dir.attempt(1).rank(0).digests.write_text("")
    assert steps(series(run_dir, 1)) == []


def test_a_file_that_is_changed_while_it_is_read_is_an_error_of_its_own(run_dir: RunDir) -> None:
    DigestWriter(run_dir, ranks=1).write([100])
    found = series(run_dir, 1)
    run_dir.attempt(1).rank(0).digests.write_text("x" * 5000)
    with pytest.raises(ValueError, match="step 100"):
        found.at(100).rank(0)


def test_links_pipes_and_missing_files_have_no_digests(run_dir: RunDir, tmp_path: Path) -> None:
    DigestWriter(RunDir(tmp_path / "other"), ranks=1).write([100])
    target = RunDir(tmp_path / "other").attempt(1).rank(0).digests
    for attempt in (1, 2, 3):
        run_dir.attempt(attempt).rank(0).root.mkdir(parents=True)
    run_dir.attempt(1).rank(0).digests.symlink_to(target)
    os.mkfifo(run_dir.attempt(2).rank(0).digests)
    assert steps(series(run_dir, 1, 1, 1)) == []


def test_large_files_are_read_up_to_a_limit(run_dir: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digest_series, "_MAX_FILE_RECORDS", 2)
    DigestWriter(run_dir, ranks=1).write([100, 200, 300])
    found = series(run_dir, 1)
    assert (steps(found), found.complete) == ([(100, 1), (200, 1)], False)
