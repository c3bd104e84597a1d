import math

import pytest

from rekindle.contract.score import Score, best_step, metric_of


def accuracies(**values):
    return {int(step[1:]): Score("accuracy", value) for step, value in values.items()}


def test_the_best_is_the_highest_or_the_lowest_where_less_is_better():
    assert best_step(accuracies(_10=0.5, _20=0.9, _30=0.7)) == 20
    assert best_step({10: Score("-loss", 0.5), 20: Score("-loss", 0.1), 30: Score("-loss", 0.3)}) == 20


def test_of_equal_ones_the_oldest_stays_the_best():
    assert best_step(accuracies(_10=0.5, _20=0.9, _30=0.9)) == 20


def test_without_a_score_there_is_no_best():
    assert best_step({}) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_not_finite_is_never_the_best(value):
    assert best_step({10: Score("accuracy", value)}) is None
    assert best_step({10: Score("accuracy", value), 20: Score("accuracy", 0.1)}) == 20
    assert best_step({10: Score("accuracy", 0.1), 20: Score("accuracy", value)}) == 10


def test_another_metric_begins_anew():
    scores = {10: Score("accuracy", 0.9), 20: Score("-loss", 0.4), 30: Score("-loss", 0.6)}
    assert best_step(scores) == 20


def test_a_metric_is_named_with_or_without_its_sign():
    assert (metric_of("accuracy"), metric_of("-loss"), metric_of("-top-1")) == ("accuracy", "loss", "top-1")


@pytest.mark.parametrize("nothing", ["", "-", " ", "- loss", " accuracy"])
def test_a_name_that_is_none_is_refused(nothing):
    with pytest.raises(ValueError, match="best must be the name of a logged metric"):
        metric_of(nothing)
