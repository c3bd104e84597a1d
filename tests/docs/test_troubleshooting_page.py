"""docs/troubleshooting.md has every class of outcome and every error response of the code."""

import pytest

import generated_troubleshooting
from generated_sections import section
from generated_troubleshooting import PAGE, SECTIONS
from rekindle_service.api.problem_types import PROBLEM_TYPES


@pytest.mark.parametrize("name", SECTIONS)
def test_a_generated_table_agrees_with_the_code(name: str) -> None:
    assert section(name, PAGE).splitlines() == list(SECTIONS[name]()), "run `make generate`"


def test_every_kind_of_problem_is_explained_and_none_that_does_not_exist() -> None:
    assert PROBLEM_TYPES.keys() == generated_troubleshooting.problem_statuses().keys()
