"""From a submission to a queued job: checked, its code copied, its folder and its row in place."""

import errno
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rekindle.contract.durable import fsync_folder, write_json
from rekindle.contract.spec import Cadence, JobSpec, TargetKind
from rekindle_service.home import Home, new_job_id
from rekindle_service.keys_under_way import KeysUnderWay
from rekindle_service.machine.devices import Machine
from rekindle_service.rows import Job
from rekindle_service.store import StorageError, Store
from rekindle_service.submission import FieldError, Submission, SubmissionError
from rekindle_service.submission_rules import broken_rules, chosen_device
from rekindle_service.user_code.folder_copy import CodeCopyError, copy_code
from rekindle_service.user_code.manifest import take_manifest
from rekindle_service.user_code.sources import Checkout, CodeSources


@dataclass(frozen=True, slots=True)
class Submitter:
    """Makes jobs.

    ``check_python`` says what is wrong with an interpreter (``launching.interpreter``), or None; ``checkout`` fetches
    from git (``launching.git_checkout``).
    """

    store: Store
    home: Home
    machine: Machine
    check_python: Callable[[str], FieldError | None]
    checkout: Checkout
    under_way: KeysUnderWay = field(default_factory=KeysUnderWay)

    def submit(self, submission: Submission, idempotency_key: str | None = None) -> Job:
        """The new job, or the one that the key made before, or is making just now.

        The run directory is put together aside and renamed, then the row is inserted: what is interrupted half way
        leaves no job, and ``housekeeping`` sweeps the remains. Raises SubmissionError and StorageError.
        """
        with self.under_way.alone(idempotency_key):
            known = None if idempotency_key is None else self.store.job_by_key(idempotency_key)
            return known or self._insert(self._checked(submission), idempotency_key)

    def _checked(self, submission: Submission) -> Job:
        with self.fetched([submission]) as (here,):
            errors = self.objections(here)
            if errors:
                raise SubmissionError(errors)
            return self.prepare(here)

    @contextmanager
    def fetched(self, submissions: Sequence[Submission]) -> Iterator[list[Submission]]:
        """The submissions with their code on this machine, until the end of the block. Raises as ``submit`` does."""
        try:
            with CodeSources(self.home, self.checkout).fetched(submissions) as here:
                yield here
        except OSError as error:
            raise storage_error(self.home.root, error) from error

    def objections(self, submission: Submission) -> list[FieldError]:
        """Every rule that the submission breaks here."""
        errors = broken_rules(submission, self.machine, lambda job_id: self.store.job(job_id) is not None)
        complaint = self.check_python(submission.python)
        return errors if complaint is None else [*errors, complaint]

    def prepare(self, submission: Submission) -> Job:
        """A job that lacks only its row. Precondition: there are no objections. Raises as ``submit`` does."""
        job = self._row(submission)
        try:
            self._build_run_dir(job, submission.code_folder)
        except CodeCopyError as error:
            raise SubmissionError(
                [FieldError(submission.code_field, error.rule, submission.code_name, error.hint)]
            ) from error
        except OSError as error:
            raise storage_error(self.home.runs, error) from error
        return job

    def discard(self, job: Job) -> None:
        """Take back what ``prepare`` has done."""
        shutil.rmtree(self.home.run_dir(job.id).root, ignore_errors=True)

    def _row(self, submission: Submission) -> Job:
        return Job(
            id=new_job_id(),
            name=submission.name,
            kind=submission.kind,
            target=_target_in_copy(submission),
            args=submission.args,
            code=_origin(submission),
            env=submission.env,
            python=submission.python,
            device=chosen_device(submission, self.machine),
            min_ranks=submission.min_ranks,
            max_ranks=submission.max_ranks,
            priority=submission.priority,
            after=submission.after,
            max_failures=submission.max_failures,
            hang_timeout=submission.hang_timeout,
            time_limit=submission.time_limit,
            cadence=asdict(submission.cadence),
            warm=submission.warm,
            created_at=time.time(),
        )

    def _build_run_dir(self, job: Job, code: Path | None) -> None:
        new, final = self.home.new_run(job.id), self.home.run_dir(job.id)
        try:
            new.root.mkdir(mode=0o700)
            if code is None:
                new.code.mkdir(mode=0o700)
            else:
                copy_code(code, new.code, leave_out=self.home.root)
                write_json(new.code_manifest, take_manifest(new.code).to_json())
            write_json(new.spec, spec_of(job).to_json())
            new.root.rename(final.root)
        except BaseException:
            shutil.rmtree(new.root, ignore_errors=True)
            raise
        fsync_folder(self.home.runs)

    def _insert(self, job: Job, idempotency_key: str | None) -> Job:
        """The row of ``job``, or that of another request with the same key that was faster."""
        inserted: Job | None = None
        try:
            inserted = self.store.add_job(job, idempotency_key)
        finally:
            if inserted is not job:
                self.discard(job)
        return inserted


def storage_error(folder: Path, error: OSError) -> StorageError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    advice = "free some space on its disk" if full else "check its disk and its permissions"
    return StorageError(f"{folder}: nothing can be written there ({error}): {advice}", full=full)


def spec_of(job: Job) -> JobSpec:
    """What the keeper gets to know of a job."""
    return JobSpec(
        job_id=job.id,
        name=job.name,
        kind=job.kind,
        target=job.target,
        python=job.python,
        device=job.device,
        min_ranks=job.min_ranks,
        max_ranks=job.max_ranks,
        args=job.args,
        env=job.env,
        max_failures=job.max_failures,
        hang_timeout=job.hang_timeout,
        time_limit=job.time_limit,
        cadence=Cadence(**job.cadence),
        warm=job.warm,
    )


def _origin(submission: Submission) -> dict[str, Any]:
    """Where the code came from, as people gave it: ``path``, ``bundle``, or ``git`` with the commit that it was."""
    if submission.origin is not None:
        return {name: value for name, value in asdict(submission.origin).items() if value is not None}
    return {} if submission.code_folder is None else {"path": str(submission.code_folder)}


def _target_in_copy(submission: Submission) -> str:
    """A script's path relative to the code folder; anything else as it is."""
    folder = submission.code_folder
    if submission.kind is TargetKind.SCRIPT and folder is not None:
        return str((folder / submission.target).relative_to(folder))
    return submission.target
