"""A matrix of values becomes jobs."""

import itertools
import math

from hypothesis import given
from hypothesis import strategies as st

from rekindle_service.experiments import built_in
from rekindle_service.experiments.trials import JOB_FIELDS, Trial, count, expand, job_request, label

_VALUES = st.lists(st.integers() | st.booleans() | st.text(max_size=3), min_size=1, max_size=3)
_MATRICES = st.lists(st.dictionaries(st.sampled_from(["--a", "--b", "ranks"]), _VALUES, min_size=1), max_size=3)


def test_matrices_follow_each_other_and_every_combination_comes_once_before_any_is_repeated():
    trials = expand([{"recipe": ["dp"]}, {"ranks": [1, 2], "--lr": [0.1, 0.2]}], repeats=2)
    combinations = [{"ranks": ranks, "--lr": lr} for ranks, lr in itertools.product([1, 2], [0.1, 0.2])]
    once = [{"recipe": "dp"}, *combinations]
    assert trials == [Trial(parameters, repeat) for repeat in (0, 1) for parameters in once]


@given(_MATRICES, st.integers(1, 3))
def test_as_many_trials_are_counted_as_are_made(matrices, repeats):
    assert count(matrices, repeats) == len(expand(matrices, repeats))


def test_a_number_of_jobs_beyond_all_bounds_is_counted_without_making_them():
    matrix = {f"--option-{index}": list(range(200)) for index in range(20)}
    assert count([matrix], 1) == math.prod([200] * 20)


def test_options_and_the_number_of_the_repeat_are_for_the_script_and_fields_for_the_job():
    trial = Trial(
        {"ranks": 2, "--lr": 0.1, "--no-shuffle": True, "--amp": False, "--seed": None, "--k=": "a b"}, repeat=0
    )
    base = {"recipe": "ddp", "args": ["--epochs", "3"], "env": {"A": "b"}}
    assert job_request(base, ["--lr", "1"], trial, name="n", seed_option=None) == {
        "recipe": "ddp",
        "env": {"A": "b"},
        "ranks": 2,
        "args": ["--epochs", "3", "--lr", "1", "--lr", "0.1", "--no-shuffle", "--k=a b"],
        "name": "n",
    }
    for repeat in (0, 1):
        repeated = job_request({}, [], Trial({"--lr": 0.1}, repeat), name="n", seed_option="--seed")
        assert repeated["args"] == ["--seed", str(repeat), "--lr", "0.1"]


def test_a_label_shows_flags_as_words():
    assert label({"ranks": 2, "--sync": True, "--flat": False, "--x": None}) == (
        "ranks=2 --sync=yes --flat=no --x=not set"
    )


def test_no_builtin_varies_what_is_neither_an_option_nor_a_field():
    for name, size in itertools.product(built_in.names(), built_in.SIZES):
        body = built_in.definition(name, size)
        matrices = body["matrix"] if isinstance(body["matrix"], list) else [body["matrix"]]
        keys = {key for matrix in matrices for key in matrix}
        assert keys, name
        assert all(key.startswith("--") or key in JOB_FIELDS for key in keys), name
