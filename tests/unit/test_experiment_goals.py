"""Which values of a metric are better, and which rows of a table have the best one."""

import pytest

from rekindle_service.experiments.comparison import Measure, best_of, compare
from rekindle_service.experiments.goals import best_rows, guess_goal
from rekindle_service.experiments.matrix import Trial


@pytest.mark.parametrize(
    ("metric", "goal"),
    [
        ("loss", "min"),
        ("val/loss", "min"),
        ("valLoss", "min"),
        ("test_accuracy", "max"),
        ("train.top1", "max"),
        ("epoch_seconds", "min"),
        ("samples_per_second", "max"),
        ("time per step", "min"),
        ("tokens/s", "max"),
        ("ms_of_16384_kB", "min"),
        ("accuracy_loss", "min"),
        ("lossless", None),
        ("lr", None),
        ("<img src=x onerror=alert(1)>", None),
        ("", None),
    ],
)
def test_the_name_of_a_metric_says_what_is_better(metric: str, goal: str | None) -> None:
    assert guess_goal(metric) == goal


def test_a_declared_goal_is_stronger_than_a_name() -> None:
    assert Measure("loss", goal="max").direction == "max"
    assert Measure("loss").direction == "min"


@pytest.mark.parametrize(
    ("values", "goal", "best"),
    [
        ([2.0, 1.0, None, 1.0], "min", [1, 3]),
        ([2.0, 1.0, None], "max", [0]),
        ([1.0, 1.0], "min", []),
        ([1.0, None], "min", []),
        ([2.0, 1.0], None, []),
        ([], "min", []),
    ],
)
def test_rows_are_best_only_where_another_one_is_worse(
    values: list[float | None], goal: str | None, best: list[int]
) -> None:
    assert best_rows(values, goal) == best


def test_each_measure_has_its_best_rows() -> None:
    measures = [Measure("loss"), Measure("accuracy"), Measure("lr")]
    trials = [Trial({"--lr": lr}, 0) for lr in (1, 2)]
    rows = compare(trials, [[0.5, 0.9, 1.0], [0.4, 0.8, 2.0]], measures)
    assert best_of(rows, measures) == [[1], [0], []]
