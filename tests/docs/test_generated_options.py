"""The options that the pages know are those of the table."""

import generated_options


def test_the_options_of_the_pages_are_those_of_the_table() -> None:
    assert generated_options.OPTIONS.read_text() == generated_options.text(), "run `make generate`"
