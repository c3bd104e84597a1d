"""The table of an experiment."""

import pytest

from rekindle_service.experiments.comparison import BestResult, Measure, best_result, compare, default_measures
from rekindle_service.experiments.matrix import Trial
from rekindle_service.experiments.wording import result_text


def values_of(trials, numbers, *measures):
    return [row.values for row in compare(trials, numbers, measures)]


@pytest.mark.parametrize(("take", "taken"), [("last", 2.0), ("min", 1.0), ("max", 4.0), ("mean", pytest.approx(7 / 3))])
def test_a_measure_aggregates_a_series(take, taken):
    assert Measure("loss", take).of([1.0, None, 4.0, 2.0]) == taken


@pytest.mark.parametrize("take", ["last", "min", "max", "mean"])
def test_a_series_without_numbers_has_no_aggregate(take):
    assert Measure("loss", take).of([]) is None
    assert Measure("loss", take).of([None]) is None


def test_a_last_value_that_was_not_finite_is_not_replaced_by_an_earlier_one():
    assert Measure("loss").of([1.0, None]) is None


def test_repeats_share_a_row_with_their_mean_and_spread():
    trials = [Trial({"--lr": lr}, repeat) for repeat in range(2) for lr in (0.1, 0.2)]
    rows = compare(trials, [[1.0], [5.0], [3.0], [None]], [Measure("loss")])
    assert [(row.parameters, row.trials, row.values, row.spread) for row in rows] == [
        ({"--lr": 0.1}, [0, 2], [2.0], [(1.0, 3.0)]),
        ({"--lr": 0.2}, [1, 3], [5.0], [None]),
    ]


def test_the_headline_is_the_best_row_of_the_first_measure_with_a_goal():
    trials = [Trial({"--lr": lr}, 0) for lr in (0.1, 0.2, 0.3)]
    measures = [Measure("steps"), Measure("loss"), Measure("accuracy")]
    rows = compare(trials, [[1.0, 0.5, 9.0], [1.0, 0.25, 1.0], [1.0, None, 1.0]], measures)
    assert best_result(rows, measures) == BestResult("loss", "min", 0.25, {"--lr": 0.2}, 0.25, 0.5)
    assert best_result(rows, measures[:1]) == BestResult("steps", None, None, None, 1.0, 1.0)
    assert best_result(compare(trials, [[None]] * 3, measures[:1]), measures[:1]) is None


@pytest.mark.parametrize(
    ("result", "text"),
    [
        (
            BestResult("loss", "min", 0.123456, {"--lr": 0.2, "--flat": True, "--net": "a"}, 0.123456, 5.0),
            "best loss 0.1235 with --lr 0.2, --flat yes, --net a; all 0.1235 to 5",
        ),
        (BestResult("loss", "min", 0.5, {}, 0.5, 0.5), "best loss 0.5; all 0.5 to 0.5"),
        (BestResult("steps", None, None, None, 1.0, 3.0), "steps 1 to 3"),
        (BestResult("steps", None, None, None, 1.0, 1.0), "steps 1"),
    ],
)
def test_the_headline_is_one_line_of_words(result: BestResult, text: str) -> None:
    assert result_text(result) == text


def test_a_relative_measure_is_divided_by_the_row_that_agrees_in_everything_else():
    speed_up = Measure("speed", relative_to={"ranks": 1})
    trials = [Trial({"ranks": ranks, "--batch": batch}, 0) for ranks in (1, 2) for batch in (32, 64)]
    assert values_of(trials, [[10.0], [20.0], [15.0], [40.0]], speed_up) == [[1.0], [1.0], [1.5], [2.0]]


def test_a_baseline_may_have_fewer_parameters():
    trials = [Trial({"recipe": "dp", "ranks": 1}, 0), Trial({"recipe": "ddp", "ranks": 2, "--lr-rule": "sqrt"}, 0)]
    measure = Measure("speed", relative_to={"recipe": "dp", "ranks": 1})
    assert values_of(trials, [[10.0], [15.0]], measure) == [[1.0], [1.5]]


@pytest.mark.parametrize("reference", [None, 0.0])
def test_without_a_number_to_divide_by_there_is_no_ratio(reference):
    trials = [Trial({"ranks": 1}, 0), Trial({"ranks": 2}, 0)]
    assert values_of(trials, [[reference], [1.0]], Measure("speed", relative_to={"ranks": 1})) == [[None], [None]]
    assert values_of(trials, [[1.0], [1.0]], Measure("speed", relative_to={"ranks": 8})) == [[None], [None]]


def test_switches_and_numbers_are_different_values():
    rows = compare([Trial({"--x": True}, 0), Trial({"--x": 1}, 0)], [[1.0], [2.0]], [Measure("loss")])
    assert [row.values for row in rows] == [[1.0], [2.0]]


def test_without_measures_the_last_of_every_metric_is_shown():
    found = default_measures([{"loss": []}, {"accuracy": [], "loss": []}])
    assert [(measure.metric, measure.take) for measure in found] == [("loss", "last"), ("accuracy", "last")]


def test_a_heading_names_metric_aggregation_and_baseline():
    assert Measure("loss").heading == "loss"
    assert Measure("speed", "max").heading == "max speed"
    assert Measure("speed", relative_to={"ranks": 1}).heading == "speed / ranks=1"
    assert Measure("speed", title="speed-up").heading == "speed-up"
