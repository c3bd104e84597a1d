"""docs/troubleshooting.md has every class of outcome, docs/reference/errors.md every error response of the code."""

from docs.reference.errors import statuses_by_type
from generated_sections import section
from generated_troubleshooting import PAGE, SECTIONS
from rekindle_service.api.problem_types import PROBLEM_TYPES


def test_every_generated_table_agrees_with_the_code() -> None:
    outdated = [name for name, lines in SECTIONS.items() if section(name, PAGE).splitlines() != list(lines())]
    assert outdated == [], "run `make generate`"


def test_every_kind_of_problem_is_explained_and_none_that_does_not_exist() -> None:
    assert PROBLEM_TYPES.keys() == statuses_by_type().keys()
