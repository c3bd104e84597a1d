"""Conditions that lists of jobs filter by, all answered from indexes."""

from dataclasses import dataclass
from enum import StrEnum

from sqlalchemy import TextClause
from sqlmodel import col, or_, select
from sqlmodel.sql.expression import SelectOfScalar

from rekindle.contract.states import JobState
from rekindle_service.store.tables import ARCHIVED, HELD, TAGGED, UNSEEN_FAILURES, Experiment, Job


class Mark(StrEnum):
    """What a job can be besides its state."""

    HELD = "held"
    UNSEEN = "unseen"  # failed, and nobody has looked at it since
    ARCHIVED = "archived"


_MARKS: dict[Mark, TextClause] = {Mark.HELD: HELD, Mark.UNSEEN: UNSEEN_FAILURES, Mark.ARCHIVED: ARCHIVED}


@dataclass(frozen=True, slots=True)
class JobConditions:
    """All of them hold; an empty one holds always. ``experiment``: its id or its name."""

    states: frozenset[JobState] = frozenset()
    marks: frozenset[Mark] = frozenset()
    tags: frozenset[str] = frozenset()
    owner: str | None = None
    experiment: str | None = None
    number: int | None = None

    def apply(self, query: SelectOfScalar[int]) -> SelectOfScalar[int]:
        """``query`` for the numbers of jobs, with these conditions."""
        if len(self.states) == 1:
            query = query.where(col(Job.state).in_(self.states))
        elif self.states:  # as the opposite, so that the index by number is read: one by state would have to be sorted
            query = query.where(col(Job.state).not_in(set(JobState) - self.states))
        for mark in sorted(self.marks):
            query = query.where(_MARKS[mark])
        for tag in sorted(self.tags):
            query = query.where(TAGGED, col(Job.tags).contains(f" {tag} ", autoescape=True))
        if self.owner is not None:
            query = query.where(Job.owner == self.owner)
        if self.experiment is not None:
            known = or_(col(Experiment.id) == self.experiment, col(Experiment.name) == self.experiment)
            query = query.where(col(Job.experiment_id).in_(select(Experiment.id).where(known)))
        return query if self.number is None else query.where(Job.number == self.number)


NO_CONDITIONS = JobConditions()
