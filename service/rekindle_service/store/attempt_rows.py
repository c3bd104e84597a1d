"""Rows of attempts: a column for each field of ``AttemptSummary``, and in ``detail`` what ``AttemptInfo`` adds."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, TypeVar

from sqlalchemy import ColumnElement
from sqlalchemy.orm import defer
from sqlmodel import Session, col, select

from rekindle.contract.run_dir.attempt_history import AttemptInfo, AttemptSummary
from rekindle.contract.run_dir.json_records import structure
from rekindle_service.store.tables import Attempt

A = TypeVar("A", bound=AttemptSummary)


def attempt_row(job_id: str, attempt: AttemptInfo) -> Attempt:
    """The row of an attempt: nothing that the journal says of it is lost."""
    values = asdict(attempt, dict_factory=_without_none)
    columns = {name: values.pop(name) for name in Attempt.model_fields.keys() & values.keys()}
    columns["outcome"] = None if attempt.outcome is None else attempt.outcome.to_json()
    return Attempt(job_id=job_id, detail=values, **columns)


def read_row(cls: type[A], row: Attempt) -> A:
    """The attempt of a row; ``AttemptInfo`` needs the detail of it, which a list does not load."""
    values = row.model_dump(exclude={"detail"})
    return structure(cls, {**values, **(row.detail if cls is AttemptInfo else {})})


def read_summaries(session: Session, *conditions: ColumnElement[bool]) -> Iterator[tuple[str, AttemptSummary]]:
    """The attempts for whose jobs ``conditions`` hold, by number, each with the id of its job."""
    query = select(Attempt).options(defer(Attempt.detail, raiseload=True))  # type: ignore[arg-type]  # a mapped column
    for row in session.exec(query.where(*conditions).order_by(col(Attempt.number))):
        yield row.job_id, read_row(AttemptSummary, row)


def _without_none(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Fields that have a value: those of each rank make most of a detail."""
    return {name: value for name, value in pairs if value is not None}
