import math

import pytest

from rekindle.contract.run_dir.snapshot_dir import SnapshotScore, best_step, metric_of


def accuracies(*values):
    return {step: SnapshotScore("accuracy", value) for step, value in enumerate(values)}


def losses(*values):
    return {step: SnapshotScore("-loss", value) for step, value in enumerate(values)}


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        (accuracies(0.5, 0.9, 0.7), 1),
        (losses(0.5, 0.1, 0.3), 1),
        (accuracies(0.5, 0.9, 0.9), 1),
        ({}, None),
        ({1: SnapshotScore("accuracy", 0.9), 2: SnapshotScore("-loss", 0.4), 3: SnapshotScore("-loss", 0.6)}, 2),
        *((accuracies(value), None) for value in (math.nan, math.inf, -math.inf)),
        *((accuracies(value, 0.1), 1) for value in (math.nan, math.inf, -math.inf)),
        *((accuracies(0.1, value), 0) for value in (math.nan, math.inf, -math.inf)),
    ],
)
def test_the_best_is_the_first_with_the_best_finite_value_of_the_latest_metric(scores, best):
    assert best_step(scores) == best


def test_a_metric_is_named_with_or_without_its_sign():
    assert (metric_of("accuracy"), metric_of("-loss"), metric_of("-top-1")) == ("accuracy", "loss", "top-1")


@pytest.mark.parametrize("nothing", ["", "-", " ", "- loss", " accuracy"])
def test_a_name_that_is_none_is_refused(nothing):
    with pytest.raises(ValueError, match="best must be the name of a logged metric"):
        metric_of(nothing)
