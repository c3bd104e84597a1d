"""The first step at which two trainings differ: phase, ranks and tensors."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from digest_files import NAMES, DigestWriter, series
from rekindle.contract.run_dir.digest_records import StepDigest, TensorKind
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.jobs.step_diff import Obstacle, Phase, StepComparison, Verdict, compare_steps, describe, notes
from rekindle_service.run_readers.digest_series import DigestSeries

Changed = Mapping[tuple[int, int], StepDigest]
STEPS = range(100, 600, 100)


@pytest.fixture
def one(tmp_path: Path) -> DigestWriter:
    return DigestWriter(RunDir(tmp_path / "one"))


@pytest.fixture
def other(tmp_path: Path) -> DigestWriter:
    return DigestWriter(RunDir(tmp_path / "other"))


def of(writer: DigestWriter) -> DigestSeries:
    return series(writer.run_dir, writer.ranks)


def compared(one: DigestWriter, other: DigestWriter, changed: Changed, steps: range = STEPS) -> StepComparison:
    one.write(steps)
    other.write(steps, changed)
    return compare_steps(of(one), of(other))


def phases(found: StepComparison) -> list[tuple[str, list[int], list[str], int]]:
    assert found.difference is not None
    return [(each.phase.value, each.ranks, each.names, each.count) for each in found.difference.phases]


def test_equal_trainings_are_identical_over_the_common_steps(one: DigestWriter, other: DigestWriter) -> None:
    one.write(range(100, 1000, 100))
    other.write(range(50, 600, 50))
    found = compare_steps(of(one), of(other))
    assert (found.verdict, found.steps) == (Verdict.IDENTICAL, list(STEPS))
    assert describe(found) == "Identical over 5 common steps, 100 to 500."
    assert notes(found) == []
    assert list(found.gap) == []


def test_a_tensor_of_one_rank_is_named_with_the_step_before_it(one: DigestWriter, other: DigestWriter) -> None:
    changed = other.tensors(400, 1, TensorKind.PARAMETERS, 0, 1) | other.tensors(500, 1, TensorKind.PARAMETERS, 0)
    found = compared(one, other, changed)
    assert found.verdict is Verdict.DIFFERENT
    assert phases(found) == [("parameters", [1], ["fc.weight", "fc.bias"], 2)]
    assert describe(found) == (
        "First difference: step 400, parameters of fc.weight (and 1 more) on rank 1; equal up to step 300."
    )
    assert (found.gap[0], found.gap[-1]) == (301, 400)
    assert any("301 to 400" in each for each in notes(found))


def test_the_earliest_phase_of_the_step_is_named_first(one: DigestWriter, other: DigestWriter) -> None:
    changed = {
        (300, rank): replace(
            other.record(300, rank),
            batch="other",
            logged={"loss": (9.0).hex()},
            tensors=other.record(303, rank).tensors,
        )
        for rank in (0, 1)
    }
    found = compared(one, other, changed)
    assert [name for name, *_ in phases(found)] == [
        "batch", "forward", "gradients", "optimizer", "parameters", "buffers",
    ]  # fmt: skip
    assert describe(found).startswith("First difference: step 300, content of the batch on all ranks; ")
    assert notes(found)[0].startswith("Also different at that step: logged values, gradients, optimizer state,")


@pytest.mark.parametrize(
    ("fields", "phase"),
    [
        ({"order": "other"}, Phase.ORDER),
        ({"samples": [0, 4]}, Phase.ORDER),
        ({"batch": "other"}, Phase.BATCH),
        ({"random": "other"}, Phase.RANDOM),
        ({"parts": "other"}, Phase.PARTS),
    ],
)
def test_each_recorded_value_has_its_phase(
    one: DigestWriter, other: DigestWriter, fields: dict[str, object], phase: Phase
) -> None:
    found = compared(one, other, other.later(200, 1, **fields))
    assert [(name, ranks) for name, ranks, *_ in phases(found)] == [(phase.value, [1])]


def test_the_first_step_that_differs_may_be_the_first_of_all(one: DigestWriter, other: DigestWriter) -> None:
    found = compared(one, other, other.tensors(100, 0, TensorKind.GRADIENTS, 1))
    assert found.difference is not None
    assert (found.difference.step, found.steps, found.gap[0]) == (100, [], 1)
    assert describe(found) == (
        "First difference: step 100, gradients of fc.bias on all ranks; it is the first step with digests of both."
    )


def test_a_logged_value_that_differs_where_all_else_is_equal_is_no_difference(
    one: DigestWriter, other: DigestWriter
) -> None:
    speeds = {
        (step, 0): replace(other.record(step, 0), logged={**other.record(step, 0).logged, "speed": float(step).hex()})
        for step in STEPS
    }
    one.write(STEPS, {at: replace(each, logged={**each.logged, "speed": "0x1p0"}) for at, each in speeds.items()})
    other.write(STEPS, speeds)
    found = compare_steps(of(one), of(other))
    assert (found.verdict, found.logged) == (Verdict.IDENTICAL, ["speed"])
    assert notes(found) == ["Logged values that differ although the training is the same: speed."]


def test_the_loss_is_named_and_the_speed_is_not(one: DigestWriter, other: DigestWriter) -> None:
    def logged(writer: DigestWriter, speed: str, loss: dict[int, str]) -> Changed:
        steps = [(step, writer.record(step, 0)) for step in STEPS]
        values = {step: {"speed": speed, **record.logged} for step, record in steps}
        return {
            (step, 0): replace(
                record, logged=values[step] | ({"loss": loss[step]} if step in loss else {}),
                random="other" if step in loss else record.random,
            )
            for step, record in steps
        }  # fmt: skip

    one.write(STEPS, logged(one, "0x1p0", {}))
    other.write(STEPS, logged(other, "0x1p1", {400: "0x1p9"}))
    found = compare_steps(of(one), of(other))
    assert phases(found) == [("random", [0], [], 1), ("forward", [0], ["loss"], 1)]


def test_replicas_that_are_written_in_full_equal_those_that_are_not(one: DigestWriter, other: DigestWriter) -> None:
    whole = {step: other.record(step, 0).tensors for step in STEPS}
    full = {
        (step, 1): replace(other.record(step, 1), tensors=whole[step] | other.record(step, 1).tensors) for step in STEPS
    }
    assert compared(one, other, full).verdict is Verdict.IDENTICAL


def test_a_rank_whose_record_is_torn_does_not_hide_the_others(one: DigestWriter, other: DigestWriter) -> None:
    one.write(STEPS)
    other.write(range(100, 500, 100))
    other.append(0, *(line for line in one.run_dir.attempt(1).rank(0).digests.read_text().splitlines()[-1:]))
    found = compare_steps(of(one), of(other))
    assert (found.verdict, found.steps) == (Verdict.IDENTICAL, list(STEPS))


def test_a_tensor_that_only_one_model_has_differs_and_other_names_cannot_be_compared(
    one: DigestWriter, other: DigestWriter
) -> None:
    larger = replace(other, names=replace(NAMES, parameters=[*NAMES.parameters, "head.weight"]))
    found = compared(one, larger, {})
    assert phases(found)[-1] == ("parameters", [0, 1], ["head.weight"], 1)
    third = replace(other, run_dir=RunDir(one.run_dir.root.parent / "third"), names=replace(NAMES, parameters=["x"]))
    third.write(STEPS)
    assert compare_steps(of(one), of(third)).obstacle is Obstacle.OTHER_MODEL


def test_with_other_world_sizes_only_what_rank_0_has_whole_is_compared(one: DigestWriter, other: DigestWriter) -> None:
    single = replace(other, ranks=1)
    ignored = {
        (step, 0): replace(other.record(step, 0), batch="x", random="y", parts="z", logged={"loss": "1"})
        for step in STEPS
    }
    found = compared(one, single, ignored)
    assert (found.verdict, found.partial) == (Verdict.IDENTICAL, True)
    assert any("world sizes" in each for each in notes(found))
    third = replace(single, run_dir=RunDir(one.run_dir.root.parent / "third"))
    third.write(STEPS, third.tensors(300, 0, TensorKind.OPTIMIZER, 1))
    found = compare_steps(of(one), of(third))
    assert phases(found) == [("optimizer", [0], ["momentum fc.bias"], 1)]
    assert describe(found).startswith("First difference: step 300, optimizer state of momentum fc.bias; equal")


def test_shards_of_other_world_sizes_cannot_be_compared_but_their_order_can(
    one: DigestWriter, other: DigestWriter
) -> None:
    two, three = replace(one, sharded=True), replace(other, ranks=3, sharded=True)
    assert compared(two, three, {}).obstacle is Obstacle.SHARDS
    third = replace(three, run_dir=RunDir(one.run_dir.root.parent / "third"))
    third.write(STEPS, third.later(400, 0, order="other"))
    assert [name for name, *_ in phases(compare_steps(of(two), of(third)))] == ["order"]


def test_shards_of_one_world_size_are_compared_rank_by_rank(one: DigestWriter, other: DigestWriter) -> None:
    two, three = replace(one, sharded=True), replace(other, sharded=True)
    assert compared(two, three, {}).verdict is Verdict.IDENTICAL
    third = replace(three, run_dir=RunDir(one.run_dir.root.parent / "third"))
    third.write(STEPS, third.later(200, 1, tensors=third.record(201, 1).tensors))
    assert [ranks for _, ranks, *_ in phases(compare_steps(of(two), of(third)))] == [[1]] * 4


def test_without_digests_or_common_steps_nothing_is_compared(one: DigestWriter, other: DigestWriter) -> None:
    one.write(STEPS)
    assert compare_steps(of(one), of(other)).obstacle is Obstacle.NO_DIGESTS
    other.write([150, 250])
    assert compare_steps(of(one), of(other)).obstacle is Obstacle.NO_COMMON_STEP


def test_a_file_that_is_changed_meanwhile_is_an_obstacle(one: DigestWriter, other: DigestWriter) -> None:
    one.write(STEPS)
    other.write(STEPS)
    both = of(one), of(other)
    path = other.run_dir.attempt(1).rank(0).digests
    path.write_text("x" * path.stat().st_size)
    assert compare_steps(*both).obstacle is Obstacle.DAMAGED
