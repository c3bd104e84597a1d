"""Sweeps: the words of `rekindle sweep`, the combinations that are drawn, the winner's command, and who lags."""

import math
import shlex
from typing import Any

import pytest
import typer

from rekindle_service.cli.commands.sweep import ValueRange, combinations, read_space
from rekindle_service.cli.job_request import require_order
from rekindle_service.experiments.comparison import guess_goal, parse_goal
from rekindle_service.experiments.halving import Lag, lagging
from rekindle_service.experiments.trials import submit_command
from rekindle_service.run_readers.metric_series import Point


def test_options_with_several_values_are_varied_and_all_other_words_are_passed_on() -> None:
    line = "data --lr 0.001,1e-2 --width=64,128 opt.name=adam,sgd --amp --tag a --shift -1,-2 seed=3 --last"
    own, space = read_space(shlex.split(line))
    assert own == ["data", "--amp", "--tag", "a", "seed=3", "--last"]
    assert space == {"--lr": [0.001, 0.01], "--width=": [64, 128], "opt.name=": ["adam", "sgd"], "--shift": [-1, -2]}


def test_values_keep_their_text_where_a_number_would_change_it_and_escapes_are_removed() -> None:
    own, space = read_space(["--v", "3.10,007,2", "--layers", r"64\,64,128", "--at", r"1\:2", "--host", "a:1"])
    assert space == {"--v": ["3.10", "007", 2], "--layers": ["64,64", 128]}
    assert own == ["--at", "1:2", "--host", "a:1"]


def test_ranges_are_of_whole_numbers_only_where_both_ends_are_written_so() -> None:
    _, space = read_space(["--lr", "log:1e-4:1e-1", "--width", "32:256", "--drop", "0:0.5"])
    assert space == {
        "--lr": ValueRange(1e-4, 1e-1, log=True, whole=False),
        "--width": ValueRange(32, 256, log=False, whole=True),
        "--drop": ValueRange(0, 0.5, log=False, whole=False),
    }


@pytest.mark.parametrize(
    ("words", "fixed", "message"),
    [
        ([], [], "no option has several values"),
        (["3,5", "1"], [], "as in --lr 0.1,0.01; 3,5 belongs to no option"),
        (["--lr", "0.1", "--amp"], [], "no option has several values"),
        (["--lr", "0.1,"], [], "--lr 0.1,: has an empty value"),
        (["--lr", "1,2", "--lr=3"], [], "--lr is given twice"),
        (["--lr", "1,2"], ["--lr", "3"], "--lr is given twice"),
        (["lr=1,2"], ["lr=3"], "lr= is given twice"),
        (["--lr", "1,2,1"], [], "has 1 twice"),
        (["--lr", "log:0:1"], [], "above 0"),
        (["--lr", "5:1"], [], "the lower number first"),
    ],
)
def test_a_mistake_is_named_with_its_option(words: list[str], fixed: list[str], message: str) -> None:
    with pytest.raises(typer.BadParameter, match=message):
        read_space(words, fixed)


def test_drawn_combinations_are_different_ones_of_the_grid_and_the_same_for_a_seed() -> None:
    space: dict[str, Any] = {"--a": [1, 2, 3], "--b": ["x", "y"]}
    assert combinations(space, None, 0) == combinations(space, 6, 0) == [space]
    drawn = combinations(space, 4, 7)
    assert drawn == combinations(space, 4, 7) != combinations(space, 4, 8)
    assert len({str(each) for each in drawn}) == 4
    assert len({str(each) for each in combinations(space, None, 0, shuffled=True)}) == 6
    assert all(each["--a"][0] in (1, 2, 3) and each["--b"][0] in ("x", "y") for each in drawn)


def test_numbers_are_drawn_within_their_range_and_evenly_over_the_magnitudes() -> None:
    space: dict[str, Any] = {
        "--lr": ValueRange(1e-4, 1e-1, log=True, whole=False),
        "--width": ValueRange(32, 35, log=False, whole=True),
    }
    drawn = combinations(space, 200, 0)
    rates, widths = [each["--lr"][0] for each in drawn], [each["--width"][0] for each in drawn]
    assert all(1e-4 <= rate <= 1e-1 for rate in rates)
    assert 40 < sum(1e-3 <= rate < 1e-2 for rate in rates) < 95
    assert set(widths) == {32, 33, 34, 35}


def test_too_many_trials_and_a_range_without_a_number_of_trials_say_what_to_pass() -> None:
    many: dict[str, Any] = {"--a": list(range(67)), "--b": [1, 2, 3]}
    with pytest.raises(typer.BadParameter, match=r"201 trials exceed the maximum of 200: .*--trials"):
        combinations(many, None, 0)
    assert len(combinations(many, 200, 0)) == 200
    with pytest.raises(typer.BadParameter, match=r"--lr has a range.*--trials"):
        combinations({"--lr": ValueRange(0, 1, log=False, whole=False)}, None, 0)


def test_an_option_of_rekindle_after_the_script_is_refused_with_both_ways_to_write_it() -> None:
    with pytest.raises(typer.BadParameter) as caught:
        require_order(
            ["--ranks", "2", "train.py"], ["--lr", "1,2", "--goal", "x", "--", "-e", "9"], "sweep", ["--goal"]
        )
    assert "`rekindle sweep --goal x --ranks 2 train.py --lr 1,2 -- -e 9`" in str(caught.value)
    assert "`rekindle sweep --ranks 2 -- train.py --lr 1,2 --goal x -- -e 9`" in str(caught.value)


def test_a_goal_is_low_with_a_minus_high_with_a_plus_and_else_as_its_name_says() -> None:
    assert [parse_goal(text) for text in ("loss", "accuracy", "-foo", "+foo")] == [
        ("loss", "min"), ("accuracy", "max"), ("foo", "min"), ("foo", "max"),
    ]  # fmt: skip
    for text, message in {"foo": "write -foo", "-": "the name of a metric", "": "the name of a metric"}.items():
        with pytest.raises(ValueError, match=message):
            parse_goal(text)
    assert guess_goal("load") is None  # of the machine: neither is better


def test_the_command_of_a_request_has_its_options_and_no_value_of_a_variable() -> None:
    request = {
        "script": "train.py", "code": {"path": "/my code"}, "ranks": {"min": 1, "max": 2}, "env": {"TOKEN": "•••"},
        "after": ["a", "b"], "snapshot": {"monitor": "-loss"}, "device": "auto", "args": ["--lr", "0.1"],
    }  # fmt: skip
    command = submit_command(request)
    assert command.startswith("rekindle submit --code '/my code' ")
    assert command.endswith(" train.py --lr 0.1")
    for part in ("--env TOKEN ", "--after a --after b", "--ranks 1:2", "--monitor -loss"):
        assert part in command
    assert "•••" not in command
    assert "--device" not in command
    module = {"module": "pkg.train", "args": ["--lr", "1"]}
    assert submit_command(module) == "rekindle submit --module pkg.train -- --lr 1"


def curve(*values: float | None) -> list[Point]:
    return [Point(step, None, 0.0, value) for step, value in enumerate(values, start=1)]


def test_a_trial_lags_that_is_not_among_the_best_third_at_a_ninth_or_a_third_of_the_training() -> None:
    curves = {"a": curve(3, 2, 1), "b": curve(1, 2, 3), "c": curve(2, 2, 2), "d": curve(4)}
    assert lagging(curves, 9, "min") == {"a": Lag(1, 3, 2), "d": Lag(1, 4, 2), "b": Lag(3, 3, 1), "c": Lag(3, 2, 1)}
    assert lagging(curves, 9, "max") == {"b": Lag(1, 1, 3), "c": Lag(1, 2, 3), "a": Lag(3, 1, 3)}
    assert lagging(curves, 90, "min") == {}  # no trial has come as far as step 10


def test_no_trial_lags_among_fewer_than_three_or_among_equal_ones() -> None:
    assert lagging({"a": curve(1), "b": curve(2), "c": []}, 9, "min") == {}
    assert lagging({key: curve(1, 1, 1, 1) for key in "abcd"}, 9, "max") == {}


def test_a_value_that_is_not_finite_is_the_worst_and_alone_prunes_nothing() -> None:
    assert lagging({key: curve(None, None, None) for key in "abcd"}, 9, "min") == {}
    for goal in ("min", "max"):
        found = lagging({"a": curve(None), "b": curve(1), "c": curve(1)}, 9, goal)  # type: ignore[arg-type]
        assert found == {"a": Lag(1, None, 1)}


@pytest.mark.parametrize("order", ["abc", "cba"])
def test_the_order_in_which_trials_come_changes_nothing(order: str) -> None:
    curves = {"a": curve(3, 1), "b": curve(1, 9), "c": curve(2, math.pi)}
    assert lagging({key: curves[key] for key in order}, 9, "min") == {"a": Lag(1, 3, 1), "c": Lag(1, 2, 1)}
