"""The types of the REST API that the pages use are those of the server."""

import generated_types


def test_the_types_are_as_the_openapi_document_has_them() -> None:
    assert generated_types.TYPES.read_text() == generated_types.text(), "run `make generate`"
    assert generated_types.OPTIONS.read_text() == generated_types.options(), "run `make generate`"
