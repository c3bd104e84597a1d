"""The filter line of job lists."""

import pytest

from job_examples import a_job
from rekindle.contract.states import TERMINAL, JobState
from rekindle_service.jobs.job_filter import ParameterRule, parse_filter
from rekindle_service.store.job_queries import JobConditions, Mark
from rekindle_service.submission import SubmissionError


def test_words_without_a_key_are_one_part_of_the_name_and_quotes_make_a_name_of_anything() -> None:
    for line in ("digits 100%", "O'Brien", "' OR 1=1 --", "100x", "a_b", "#x", "=", ":", "x:"):
        found = parse_filter(line)
        assert (found.name_part, found.conditions, found.parameters) == (line, JobConditions(), ())
    assert parse_filter('"state:failed" "lr>1"').name_part == "state:failed lr>1"
    assert parse_filter("  ").name_part is None
    assert parse_filter('open "quote').name_part == 'open "quote'


def test_keys_numbers_and_parameters_may_stand_anywhere() -> None:
    found = parse_filter(
        'resnet state:failed,cancelled is:unseen tag:a tag:b owner:ann experiment:"my sweep" #7 lr>=.1'
    )
    assert found.conditions == JobConditions(
        states=frozenset({JobState.FAILED, JobState.CANCELLED}),
        marks=frozenset({Mark.UNSEEN}),
        tags=frozenset({"a", "b"}),
        owner="ann",
        experiment="my sweep",
        number=7,
    )
    assert (found.name_part, found.parameters) == ("resnet", (ParameterRule("lr", ">=", ".1"),))
    assert parse_filter("state:ended").conditions.states == TERMINAL


def test_what_means_nothing_is_named_with_what_was_meant() -> None:
    for line, value, hint in (
        ("stat:failed", "stat:failed", "did you mean 'state'? To find it in names, use quotes"),
        ("state:faild", "faild", "did you mean 'failed'?"),
        ("is:old", "old", "known here: held, unseen, archived"),
    ):
        with pytest.raises(SubmissionError) as caught:
            parse_filter(line)
        (error,) = caught.value.errors
        assert (error.field, error.value) == ("q", value)
        assert hint in error.hint


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ("lr>0.01", True), ("lr>0.1", False), ("lr<=1e-1", True), ("--lr=0.10", True), ("batch-size=8", True),
        ("batch_size!=8", False), ("model=resnet", True), ("model<resnet", False), ("amp=yes", True), ("wd=-1", True),
        ("depth=18", True), ("seed=3", True), ("unknown=1", False), ("unknown!=1", False),
    ],
)  # fmt: skip
def test_a_parameter_is_an_option_of_the_script_or_of_the_experiment(rule: str, *, holds: bool) -> None:
    args = ["--lr", "1", "--lr", "0.1", "--batch_size=8", "--amp", "--model", "resnet", "--wd", "-1"]
    job = a_job(args=args, trial={"parameters": {"--depth": 18, "seed=": 3}, "repeat": 0})
    assert [each.holds(job) for each in parse_filter(rule).parameters] == [holds]


def test_a_job_without_arguments_has_no_parameter_and_its_last_option_may_be_a_flag() -> None:
    (rule,) = parse_filter("amp=yes").parameters
    assert [rule.holds(a_job(args=args)) for args in ([], ["--amp"], ["--lr", "1"])] == [False, True, False]
