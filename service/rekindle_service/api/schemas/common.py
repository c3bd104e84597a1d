"""Types that the models of requests and responses share."""

from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer

from rekindle.contract.field_texts import describe
from rekindle.contract.run_dir.json_records import bounded_json


class ApiModel(BaseModel):
    """Base of all models: the text below a field is its description in the OpenAPI document."""

    model_config = ConfigDict(json_schema_extra=describe)


class ResponseModel(ApiModel):
    """Base of models that are read from the attributes of a row or a record."""

    model_config = ConfigDict(from_attributes=True)


def as_datetime(seconds: float) -> datetime | None:
    """Seconds since the epoch in UTC; None for what no calendar contains (jobs write times, too)."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def replace_surrogates(value: Any) -> Any:
    """``value`` with unpaired surrogates in all its strings replaced: JSON files may hold some, UTF-8 cannot."""
    match value:
        case str():
            return value if value.isascii() else value.encode(errors="replace").decode()
        case dict():
            return {replace_surrogates(key): replace_surrogates(item) for key, item in value.items()}
        case list():
            return [replace_surrogates(item) for item in value]
        case _:
            return value


Timestamp = Annotated[float, PlainSerializer(as_datetime, return_type=datetime | None)]
"""Seconds since the epoch, in JSON an ISO 8601 date and time in UTC."""

Utf8Str = Annotated[str, BeforeValidator(replace_surrogates)]
"""Text from a job's files."""

MetricPoint = tuple[int, int | None, float, float | None]
"""Step, epoch, seconds since the epoch, value (null where it is not finite)."""

JsonObject = Annotated[dict[str, Any], BeforeValidator(bounded_json)]
"""A JSON object from a job's files."""
