"""The client's types are those of the OpenAPI document."""

import generated_models
from rekindle_service import client
from rekindle_service.client import models


def test_the_models_are_generated_from_the_document_of_the_server() -> None:
    assert generated_models.MODELS.read_text() == generated_models.models(generated_models.openapi()), "`make generate`"


def test_every_model_of_an_answer_is_public() -> None:
    for name in ("Job", "Attempt", "Rank", "Snapshot", "JobEvent", "Interval", "FaultInjection", "Trial", "Outcome"):
        assert getattr(client, name) is getattr(models, name)
        assert name in client.__all__
