"""What can explain that two trainings differ: everything on record, and never the value of a variable."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rekindle.contract.files import write_json
from rekindle.contract.job import HIDDEN, JobSpec
from rekindle.contract.job_options import TargetKind
from rekindle.contract.run_dir.attempt_history import AttemptSummary
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.jobs.difference_causes import ComparedRun, code_differences, find_causes, why_incomparable
from rekindle_service.jobs.packaging.code_manifest import FileDifference, take_manifest
from rekindle_service.jobs.step_diff import Obstacle, Phase, PhaseDifference, StepComparison, StepDifference, Verdict

EQUAL = StepComparison(Verdict.IDENTICAL, steps=[100])


def a_run(root: Path, *, args: str = "--lr 0.1 data", **fields: Any) -> ComparedRun:
    run_dir = RunDir(root)
    run_dir.code.mkdir(parents=True)
    (run_dir.code / "train.py").write_text("a\nb\n")
    write_json(run_dir.code_manifest, take_manifest(run_dir.code).to_json())
    packages = {"torch": "2.15", "numpy": "2.1"}
    write_json(run_dir.surroundings, {"run": 1, "at": 1.0, "host": "box", "python": "3.12.1", "packages": packages})
    spec = replace(JobSpec("digits", TargetKind.SCRIPT, "train.py", "/usr/bin/python3", args.split()), **fields)
    attempt = AttemptSummary(1, world_size=2, devices=["cuda:0", "cuda:1"])
    return ComparedRun(f'job "{root.name}" (#1)', spec, run_dir, [attempt])


@pytest.fixture
def one(tmp_path: Path) -> ComparedRun:
    return a_run(tmp_path / "one")


def texts(one: ComparedRun, other: ComparedRun, found: StepComparison = EQUAL) -> list[str]:
    return [each.text for each in find_causes(one, other, code_differences(one, other), found)]


def a_difference(*phases: PhaseDifference) -> StepComparison:
    return StepComparison(Verdict.DIFFERENT, steps=[100], difference=StepDifference(200, 0, 1, 1, 2, [*phases]))


def test_equal_jobs_differ_in_nothing(one: ComparedRun, tmp_path: Path) -> None:
    assert texts(one, a_run(tmp_path / "other")) == []


def test_options_are_compared_one_by_one(one: ComparedRun, tmp_path: Path) -> None:
    other = a_run(tmp_path / "other", args="--lr=0.2 --amp --seed 1 --data a --data b", python="/opt/python")
    other = replace(other, spec=replace(other.spec, args=["more", *other.spec.args]))
    assert texts(one, other) == [
        "arguments: --amp (absent) and (no value); --data (absent) and a b; --lr 0.1 data and 0.2; "
        "--seed (absent) and 1; arguments (absent) and more; interpreter /usr/bin/python3 and /opt/python"
    ]
    assert texts(one, a_run(tmp_path / "equal", args="--lr=0.1 data")) == []


def test_packages_are_named_with_their_versions_and_torch_comes_first(one: ComparedRun, tmp_path: Path) -> None:
    other = a_run(tmp_path / "other")
    surroundings = {"host": "box", "python": "3.13.0", "packages": {"torch": "2.16", "extra": "1", "numpy": "2.1"}}
    write_json(other.run_dir.surroundings, surroundings)
    assert texts(one, other) == [
        "packages: torch 2.15 and 2.16; extra (absent) and 1",
        "machine: python 3.12.1 and 3.13.0",
    ]
    other.run_dir.surroundings.write_text("nonsense")
    assert texts(one, other) == [], "what is not on record is no evidence"


def test_variables_are_named_without_their_values(one: ComparedRun, tmp_path: Path) -> None:
    hidden = dict.fromkeys(("EQUAL", "SECRET", "MORE", "LOST"), HIDDEN)
    other = a_run(tmp_path / "other", env=hidden, env_from={"KEY": {"file": "/a"}})
    less = {name: HIDDEN for name in hidden if name != "MORE"}
    one = replace(one, spec=replace(one.spec, env=less, env_from={"KEY": {"file": "/b"}}))
    write_json(one.run_dir.environment, {"EQUAL": "1", "SECRET": "hunter2", "LOST": "x"})
    write_json(other.run_dir.environment, {"EQUAL": "1", "SECRET": "hunter3", "MORE": "y"})
    assert texts(one, other) == ["variables: KEY; MORE; SECRET"]


def test_changed_lines_of_code_are_cut_after_some_kilobytes(one: ComparedRun, tmp_path: Path) -> None:
    other = a_run(tmp_path / "other")
    (other.run_dir.code / "train.py").write_text("".join(f"line {number}\n" for number in range(1000)))
    write_json(other.run_dir.code_manifest, take_manifest(other.run_dir.code).to_json())
    (found,) = code_differences(one, other)
    assert found.diff is not None
    assert len(found.diff) < 5000
    assert found.diff.endswith("…")
    assert texts(one, other) == ["code: train.py changed"]


def test_a_name_of_a_file_that_is_not_utf_8_can_be_sent(one: ComparedRun, tmp_path: Path) -> None:
    other = a_run(tmp_path / "other")
    (other.run_dir.code / os.fsdecode(b"\xff.py")).touch()
    write_json(other.run_dir.code_manifest, take_manifest(other.run_dir.code).to_json())
    assert code_differences(one, other) == [FileDifference("?.py", "added", None)]


def test_cards_and_world_sizes_of_the_differing_attempts_are_compared(one: ComparedRun) -> None:
    attempts = [*one.attempts, AttemptSummary(2, world_size=4, devices=["cuda:2"] * 4)]
    assert texts(one, replace(one, attempts=attempts)) == [
        "devices: cuda:0, cuda:1 and cuda:2, cuda:2, cuda:2, cuda:2",
        "world size: 2 and 4",
    ]
    assert texts(one, replace(one, attempts=attempts), a_difference()) == []
    slots = [[AttemptSummary(1, world_size=2, devices=["cpu:0", name])] for name in ("cpu:1", "cpu:5")]
    assert texts(replace(one, attempts=slots[0]), replace(one, attempts=slots[1])) == []


def test_arguments_that_an_attempt_got_on_a_restart_are_compared(one: ComparedRun) -> None:
    attempts = [*one.attempts, replace(one.attempts[0], number=2)]
    run = replace(one, spec=replace(one.spec, on_restart=["--resume"]), attempts=attempts[1:])
    run.run_dir.attempt(2).root.mkdir(parents=True)
    write_json(run.run_dir.attempt(2).arguments, ["--lr", "0.1", "data", "--resume"])
    assert texts(run, replace(run, attempts=attempts[:1])) == ["arguments: --resume (no value) and (absent)"]


@pytest.mark.parametrize(
    ("phase", "names", "words"),
    [
        (Phase.ORDER, ["samples"], "batch size"),
        (Phase.ORDER, [], "another order"),
        (Phase.BATCH, [], "other content"),
    ],
)
def test_digests_show_whether_order_or_content_of_the_data_differs(
    one: ComparedRun, phase: Phase, names: list[str], words: str
) -> None:
    (text,) = texts(one, one, a_difference(PhaseDifference(phase, [0], names, 1)))
    assert text.startswith("data: ")
    assert words in text


def test_a_sentence_says_why_there_is_nothing_to_compare(one: ComparedRun) -> None:
    def why(run: ComparedRun, steps: list[int] | None = None) -> str:
        obstacle = Obstacle.NO_COMMON_STEP if steps else Obstacle.NO_DIGESTS
        return why_incomparable(obstacle, (run, steps or []), (one, [100, 200, 300]))

    reported = replace(one, attempts=[AttemptSummary(1, last_step=7)])
    assert "has not started" in why(replace(one, attempts=[]))
    assert "reports no steps" in why(one)
    assert "they are off" in why(reported)
    assert "steps 50, 150 to 350, " in why(one, [50, 150, 250, 350])
    for obstacle in (Obstacle.OTHER_MODEL, Obstacle.SHARDS, Obstacle.DAMAGED):
        assert why_incomparable(obstacle, (one, []), (one, [])).startswith("Nothing can be compared: ")
