"""The table of an experiment, and which of its values are better."""

import pytest

from rekindle_service.experiments.comparison import (
    BestResult,
    MeasureColumn,
    best_of,
    best_result,
    best_rows,
    compare,
    conclusion,
    default_measures,
    guess_goal,
    result_text,
)
from rekindle_service.experiments.trials import Trial


@pytest.mark.parametrize(("take", "taken"), [("last", 2.0), ("min", 1.0), ("max", 4.0), ("mean", pytest.approx(7 / 3))])
def test_a_measure_aggregates_the_numbers_of_a_series(take, taken):
    assert MeasureColumn("loss", take).of([1.0, None, 4.0, 2.0]) == taken
    assert MeasureColumn("loss", take).of([]) is None
    assert MeasureColumn("loss", take).of([None]) is None
    assert (MeasureColumn("loss", take).of([1.0, None]) is None) is (take == "last"), "the last value was not finite"


def test_repeats_share_a_row_with_their_mean_and_spread():
    trials = [Trial({"--lr": lr}, repeat) for repeat in range(2) for lr in (0.1, 0.2)]
    rows = compare(trials, [[1.0], [5.0], [3.0], [None]], [MeasureColumn("loss")])
    assert [(row.parameters, row.trials, row.values, row.spread) for row in rows] == [
        ({"--lr": 0.1}, [0, 2], [2.0], [(1.0, 3.0)]),
        ({"--lr": 0.2}, [1, 3], [5.0], [None]),
    ]


def test_the_headline_is_the_best_row_of_the_first_measure_with_a_goal():
    trials = [Trial({"--lr": lr}, 0) for lr in (0.1, 0.2, 0.3)]
    measures = [MeasureColumn("steps"), MeasureColumn("loss"), MeasureColumn("accuracy")]
    rows = compare(trials, [[1.0, 0.5, 9.0], [1.0, 0.25, 1.0], [1.0, None, 1.0]], measures)
    assert best_result(rows, measures) == BestResult(
        "best loss 0.25 with --lr 0.2; all 0.25 to 0.5", "loss", "min", 0.25, {"--lr": 0.2}, 0.25, 0.5
    )
    assert best_result(rows, measures[:1]) == BestResult("steps 1", "steps", low=1.0, high=1.0)
    assert best_result(compare(trials, [[None]] * 3, measures[:1]), measures[:1]) == BestResult()


def test_the_headline_is_one_line_of_words() -> None:
    parameters = {"--lr": 0.2, "--flat": True, "net=": "a"}
    shown = result_text("loss", 0.123456, parameters, 0.123456, 5.0)
    assert shown == "best loss 0.1235 with --lr 0.2, --flat yes, net a; all 0.1235 to 5"
    assert result_text("loss", 0.5, {}, 0.5, 0.5) == "best loss 0.5; all 0.5 to 0.5"
    assert result_text("steps", None, {}, 1.0, 3.0) == "steps 1 to 3"
    assert result_text("steps", None, {}, 1.0, 1.0) == "steps 1"


RANKS = [{"ranks": 1}, {"ranks": 2}]
RANKS_AND_BATCHES = [{"ranks": ranks, "--batch": batch} for ranks in (1, 2) for batch in (32, 64)]
RECIPES = [{"recipe": "dp", "ranks": 1}, {"recipe": "ddp", "ranks": 2, "--lr-rule": "sqrt"}]


@pytest.mark.parametrize(
    ("trials", "numbers", "relative_to", "ratios"),
    [
        (RANKS_AND_BATCHES, [10.0, 20.0, 15.0, 40.0], {"ranks": 1}, [1.0, 1.0, 1.5, 2.0]),
        (RECIPES, [10.0, 15.0], RECIPES[0], [1.0, 1.5]),
        (RANKS, [None, 1.0], {"ranks": 1}, [None, None]),
        (RANKS, [0.0, 1.0], {"ranks": 1}, [None, None]),
        (RANKS, [1.0, 1.0], {"ranks": 8}, [None, None]),
        ([{"--x": True}, {"--x": 1}], [1.0, 2.0], None, [1.0, 2.0]),
    ],
    ids=["all else equal", "fewer parameters", "no number", "zero", "no such row", "a switch is no number"],
)
def test_a_relative_measure_is_divided_by_the_row_that_agrees_in_everything_else(trials, numbers, relative_to, ratios):
    measure = MeasureColumn("speed", relative_to=relative_to)
    rows = compare([Trial(parameters, 0) for parameters in trials], [[number] for number in numbers], [measure])
    assert [row.values for row in rows] == [[ratio] for ratio in ratios]


def test_without_measures_the_last_of_every_metric_is_shown():
    found = default_measures([{"loss": []}, {"accuracy": [], "loss": []}])
    assert [(measure.metric, measure.take) for measure in found] == [("loss", "last"), ("accuracy", "last")]


def test_a_heading_names_metric_aggregation_and_baseline():
    assert MeasureColumn("loss").heading == "loss"
    assert MeasureColumn("speed", "max").heading == "max speed"
    assert MeasureColumn("speed", relative_to={"ranks": 1}).heading == "speed / ranks=1"
    assert MeasureColumn("speed", title="speed-up").heading == "speed-up"


def test_the_name_of_a_metric_shows_what_is_better_unless_its_goal_is_declared() -> None:
    goals = {
        "loss": "min",
        "val/loss": "min",
        "valLoss": "min",
        "test_accuracy": "max",
        "train.top1": "max",
        "epoch_seconds": "min",
        "samples_per_second": "max",
        "time per step": "min",
        "tokens/s": "max",
        "ms_of_16384_kB": "min",
        "accuracy_loss": "min",
        "lossless": None,
        "lr": None,
        "<img src=x onerror=alert(1)>": None,
        "": None,
    }
    assert {metric: guess_goal(metric) for metric in goals} == goals
    assert MeasureColumn("loss").direction == "min"
    assert MeasureColumn("loss", goal="max").direction == "max"


def test_rows_are_best_only_where_another_one_is_worse() -> None:
    assert best_rows([2.0, 1.0, None, 1.0], "min") == [1, 3]
    assert best_rows([2.0, 1.0, None], "max") == [0]
    assert best_rows([1.0, 1.0], "min") == []
    assert best_rows([1.0, None], "min") == []
    assert best_rows([2.0, 1.0], None) == []
    assert best_rows([], "min") == []


def test_each_measure_has_its_best_rows() -> None:
    measures = [MeasureColumn("loss"), MeasureColumn("accuracy"), MeasureColumn("lr")]
    trials = [Trial({"--lr": lr}, 0) for lr in (1, 2)]
    rows = compare(trials, [[0.5, 0.9, 1.0], [0.4, 0.8, 2.0]], measures)
    assert best_of(rows, measures) == [[1], [0], []]


ACCURACY = [MeasureColumn("accuracy")]


def concluded(trials, numbers, measures=ACCURACY, subject="--x", heading="accuracy"):
    rows = compare(trials, numbers, measures)
    return conclusion(rows, measures, subject, heading)


REPEATED = [Trial({"--x": value}, repeat) for repeat in (0, 1) for value in ("a", "b")]
PAIRS = [Trial({"ranks": ranks, "--x": value}, 0) for ranks in (1, 2) for value in ("a", "b")]
ONCE = [Trial({"--x": "a"}, 0), Trial({"--x": "b"}, 0)]


@pytest.mark.parametrize(
    ("trials", "numbers", "sentence"),
    [
        (REPEATED, [0.5, 0.8, 0.6, 0.9], "accuracy is highest with --x b, not a, and the ranges of the repeats do not"),
        (REPEATED, [0.5, 0.8, 0.9, 0.9], "but the ranges of the repeats overlap: these runs do not show a difference."),
        (REPEATED, [0.5, 0.8, 0.8, 0.9], "but the ranges of the repeats overlap"),
        (ONCE, [0.5, 0.8], "accuracy is highest with --x b, not a; a single run of each does not show whether"),
        (ONCE, [0.5, 0.5], "accuracy is the same with every value of --x."),
        (ONCE, [0.5, 0.500001], "accuracy is the same, to four digits, with every value of --x."),
        (PAIRS, [0.5, 0.8, 0.6, 0.600001], "in 1 of 2 comparisons"),
        (PAIRS, [0.5, 0.8, 0.6, 0.9], "highest with --x b in 2 of 2 comparisons with otherwise the same parameters."),
        (PAIRS, [0.5, 0.8, 0.9, 0.6], "in 1 of 2 comparisons with otherwise the same parameters: these runs do not"),
        (ONCE, [0.5, None], None),
        (ONCE, [None, None], None),
    ],
)
def test_a_conclusion_says_which_value_is_better_or_that_the_runs_do_not_show_it(trials, numbers, sentence):
    found = concluded(trials, [[number] for number in numbers])
    assert found == sentence if sentence is None else sentence in (found or "")


def test_a_conclusion_prefers_what_is_low_where_that_is_better_and_ignores_parameters_that_only_some_rows_have():
    trials = [Trial({"--x": "a", "devices": 2}, 0), Trial({"--x": "b", "ranks": 2}, 0)]
    found = concluded(trials, [[2.0], [1.0]], [MeasureColumn("loss")], heading="loss")
    assert found == "loss is lowest with --x b, not a; a single run of each does not show whether that is chance."


def test_two_columns_are_compared_row_by_row():
    measures = [MeasureColumn("exact"), MeasureColumn("padded")]
    same, other = [[1.0, 1.0], [0.6833, 0.6833000183105469]], [[1.0, 1.0], [0.5, 0.6]]
    assert concluded(ONCE, same, measures, "padded", "exact") == "padded and exact are the same in every row."
    assert concluded(ONCE, other, measures, "padded", "exact") == "padded and exact differ with --x=b."
    assert concluded(ONCE, [[None, 1.0]] * 2, measures, "padded", "exact") is None
    assert concluded(ONCE, same, measures, "padded", "unknown") is None
