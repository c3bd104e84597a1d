"""From the trials of an experiment to queued jobs: all of them or none."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace

from rekindle.contract.environment import ARRAY_INDEX
from rekindle.contract.files import sync_file_system
from rekindle_service.experiments.experiment_records import write_record
from rekindle_service.experiments.trials import Trial, index_of
from rekindle_service.jobs.submission_record import IdempotencyKey
from rekindle_service.jobs.submitter import Submitter, storage_error
from rekindle_service.store import Store, UnknownCommitError
from rekindle_service.store.tables import Experiment, Job
from rekindle_service.submission import FieldError, Submission, SubmissionError

TrialSubmission = tuple[Trial, Submission]


def submit_jobs(
    submitter: Submitter, experiment: Experiment, trials: Sequence[TrialSubmission], key: IdempotencyKey | None = None
) -> Experiment:
    """The new experiment with all its jobs, or the one that a concurrent request with the same key has made.

    Every trial is validated before anything is copied. Raises SubmissionError, which names fields as in the request
    for the experiment, QueueFullError, BusyError and StorageError.
    """
    with ExitStack() as stack:
        stack.enter_context(submitter.in_flight.lock(key))
        if (known := known_experiment(submitter.store, key)) is not None:
            return known
        submitter.require_room(experiment.owner, len(trials))
        with _fields_of_experiment(trials[0][0]):  # the code is that of ``base``, the same for all trials
            local = stack.enter_context(submitter.with_code([submission for _, submission in trials]))
        trials = [(trial, submission) for (trial, _), submission in zip(trials, local, strict=True)]
        found = [in_experiment(each, trial) for trial, one in _distinct(trials) for each in submitter.validate(one)]
        if errors := [error for index, error in enumerate(found) if error not in found[:index]]:
            raise SubmissionError(errors)
        return _insert(submitter, experiment, trials, key)


def known_experiment(store: Store, key: IdempotencyKey | None) -> Experiment | None:
    """The experiment that an earlier request with ``key`` has made. Raises SubmissionError if it was another one."""
    known = None if key is None else store.experiments.by_key(key.value)
    return known if known is None or key is None else key.check(known)


def _insert(
    submitter: Submitter, experiment: Experiment, trials: Sequence[TrialSubmission], key: IdempotencyKey | None
) -> Experiment:
    jobs: list[Job] = []
    key_value = None if key is None else key.value
    experiment.request_digest = None if key is None else key.request_digest
    parallel = 1 if experiment.definition["sequential"] else experiment.definition.get("parallel")
    room = submitter.quotas.room(experiment.owner)
    keep = False
    try:
        experiment.number = submitter.store.experiments.reserve_number()
        start = submitter.store.reserve_numbers(len(trials))
        for number, (trial, submission) in enumerate(trials, start):
            with _fields_of_experiment(trial):
                columns = {"experiment_id": experiment.id, "trial": asdict(trial), "parallel": parallel}
                first = jobs[0] if jobs else None
                jobs.append(submitter.prepare(_indexed(submission, trial), number=number, first=first, **columns))
        if len(jobs) > 1:
            sync_file_system(submitter.home.runs)  # once, not for each of their files
        write_record(submitter.home, experiment, key_value)
        inserted = submitter.store.experiments.add(experiment, jobs, key_value, numbered=True, room=room)
        keep = inserted is experiment
    except UnknownCommitError:
        keep = True  # the rows may be there, and then they need their directories
        raise
    except OSError as error:
        raise storage_error(submitter.home.root, error) from error
    finally:
        if not keep:
            for job in jobs:
                submitter.discard(job)
    if inserted is experiment:
        submitter.confirm(jobs)
    return inserted if key is None else key.check(inserted)


def _distinct(trials: Sequence[TrialSubmission]) -> Sequence[TrialSubmission]:
    """The trials that can violate different rules: the jobs of an array differ in their index alone."""
    return trials[:1] if index_of(trials[0][0].parameters) is not None else trials


def _indexed(submission: Submission, trial: Trial) -> Submission:
    """The submission with its index in an array as a variable of its environment, which no request can set."""
    index = index_of(trial.parameters)
    if index is None:
        return submission
    env = {**submission.spec.env, ARRAY_INDEX: str(index)}
    return replace(submission, spec=replace(submission.spec, env=env))


@contextmanager
def _fields_of_experiment(trial: Trial) -> Iterator[None]:
    """Within, a SubmissionError names the fields of the request for the experiment."""
    try:
        yield
    except SubmissionError as error:
        raise SubmissionError([in_experiment(each, trial) for each in error.errors]) from error


def in_experiment(error: FieldError, trial: Trial) -> FieldError:
    """``matrix.ranks`` for a field that the trial has set, else ``base.ranks``; ``base`` for the request as a whole."""
    parent = "matrix" if error.field.partition(".")[0] in trial.parameters else "base"
    return replace(error, field=f"{parent}.{error.field}" if error.field else parent)
