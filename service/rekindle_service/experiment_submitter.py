"""From the cells of an experiment to queued jobs: all of them or none."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from rekindle_service.experiments.matrix import Cell
from rekindle_service.rows import Experiment, Job
from rekindle_service.submission import FieldError, Submission, SubmissionError
from rekindle_service.submitter import Submitter

CellSubmission = tuple[Cell, Submission]


@dataclass(frozen=True, slots=True)
class ExperimentSubmitter:
    """Makes experiments, with the jobs' own submitter."""

    submitter: Submitter

    def known(self, idempotency_key: str | None) -> Experiment | None:
        """The experiment that the key made before."""
        return None if idempotency_key is None else self.submitter.store.experiments.by_key(idempotency_key)

    def submit(
        self,
        experiment: Experiment,
        cells: Sequence[CellSubmission],
        *,
        one_at_a_time: bool,
        idempotency_key: str | None = None,
    ) -> Experiment:
        """The new experiment with all its jobs, or the one that a concurrent request with the same key has made.

        Every cell is checked before anything is copied. Raises SubmissionError, which names fields as in the
        request for the experiment, and StorageError.
        """
        with ExitStack() as stack:
            stack.enter_context(self.submitter.under_way.alone(idempotency_key))
            if (known := self.known(idempotency_key)) is not None:
                return known
            cells = self._fetched(cells, stack)
            self._check(cells)
            return self._insert(experiment, cells, one_at_a_time, idempotency_key)

    def _insert(
        self, experiment: Experiment, cells: Sequence[CellSubmission], one_at_a_time: bool, idempotency_key: str | None
    ) -> Experiment:
        jobs: list[Job] = []
        inserted: Experiment | None = None
        try:
            for cell, submission in cells:
                job = self._prepare(cell, submission)
                job.experiment_id, job.cell = experiment.id, cell.to_json()
                job.follows = jobs[-1].id if jobs and one_at_a_time else None
                jobs.append(job)
            inserted = self.submitter.store.experiments.add(experiment, jobs, idempotency_key)
        finally:
            if inserted is not experiment:
                for job in jobs:
                    self.submitter.discard(job)
        return inserted

    def _fetched(self, cells: Sequence[CellSubmission], stack: ExitStack) -> list[CellSubmission]:
        """The cells with their code on this machine until ``stack`` is closed; what they share is fetched once."""
        try:
            fetching = self.submitter.fetched([submission for _, submission in cells])
            here = stack.enter_context(fetching)
        except SubmissionError as error:
            raise SubmissionError([in_experiment(each, cells[0][0]) for each in error.errors]) from error
        return [(cell, submission) for (cell, _), submission in zip(cells, here, strict=True)]

    def _check(self, cells: Sequence[CellSubmission]) -> None:
        errors: list[FieldError] = []
        for cell, submission in cells:
            found = (in_experiment(error, cell) for error in self.submitter.objections(submission))
            errors += [error for error in found if error not in errors]
        if errors:
            raise SubmissionError(errors)

    def _prepare(self, cell: Cell, submission: Submission) -> Job:
        try:
            return self.submitter.prepare(submission)
        except SubmissionError as error:
            raise SubmissionError([in_experiment(each, cell) for each in error.errors]) from error


def in_experiment(error: FieldError, cell: Cell) -> FieldError:
    """``matrix.ranks`` for a field that the cell has set, else ``base.ranks``; ``base`` for the request as a whole."""
    place = "matrix" if error.field.partition(".")[0] in cell.parameters else "base"
    return replace(error, field=f"{place}.{error.field}" if error.field else place)
