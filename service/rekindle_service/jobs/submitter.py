"""From a submission to a queued job: validated, its code copied, its run directory and row created."""

import errno
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from rekindle.contract.files import atomic_write, fsync_directory, write_json
from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import TargetKind
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.states import JobIntent
from rekindle_service.config.home import Home, is_job_id, new_job_id
from rekindle_service.jobs.packaging.code_copy import CodeCopyError, CodeTree, Inventory, copy_code, open_code
from rekindle_service.jobs.packaging.code_manifest import take_manifest
from rekindle_service.jobs.packaging.code_sources import fetch_code, unknown_bundle
from rekindle_service.jobs.packaging.continuation import check_stopped, continue_run, require_snapshot
from rekindle_service.jobs.packaging.ignore_rules import IGNORE_FILE, CopyOptions
from rekindle_service.jobs.quotas import Quotas, priority_errors, quota_errors
from rekindle_service.jobs.submission_record import IdempotencyKey, IdempotencyLocks, confirm_runs, stored_spec
from rekindle_service.jobs.validation import validate
from rekindle_service.launch.isolation.rights import SubmitRights
from rekindle_service.launch.local.interpreter import EditableModule, bypass_warnings
from rekindle_service.launch.registry import Launchers
from rekindle_service.store import StorageError, Store, UnknownCommitError
from rekindle_service.store.tables import Job
from rekindle_service.submission import (
    BusyError,
    FieldError,
    Submission,
    SubmissionError,
    raise_if_lacking,
    without_values,
)


@dataclass(frozen=True, slots=True)
class Draft:
    """A job that would be accepted, stored nowhere, and the code that would be copied for it."""

    job: Job
    code_files: int = 0
    code_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Submitter:
    """Creates jobs.

    ``editable_modules`` returns what an interpreter imports from elsewhere (``launch.local.interpreter``);
    ``scheduler_problem`` says why nothing is scheduled now, if so.
    """

    store: Store
    home: Home
    launchers: Launchers
    editable_modules: Callable[[str], Sequence[EditableModule]] = lambda _: ()
    in_flight: IdempotencyLocks = field(default_factory=IdempotencyLocks)
    quotas: Quotas = field(default_factory=Quotas)
    mirror: str | None = None  # the setting
    scheduler_problem: Callable[[], str | None] = lambda: None

    @property
    def rights(self) -> SubmitRights:
        """Permissions for reading a submission's files."""
        return self.launchers.rights

    def submit(self, submission: Submission, key: IdempotencyKey | None = None) -> Job:
        """The new job, or the one that the key made before, or is making just now.

        The run directory is built under another name, the row is inserted, then the directory gets its name, which
        confirms the submission: ``scheduler.recovery`` removes a directory without a row that was never confirmed,
        and no other. Raises SubmissionError, QueueFullError, BusyError and StorageError.
        """
        with self.in_flight.lock(key):
            if key is not None and (known := self.store.job_by_key(key.value)) is not None:
                return key.check(known)
            with self._accepted(submission) as fetched:
                columns: dict[str, Any] = {}
                if key is not None:
                    columns = {"idempotency_key": key.value, "request_digest": key.request_digest}
                inserted = self._insert(self.prepare(fetched, **columns))
                return inserted if key is None else key.check(inserted)

    def draft(self, submission: Submission, jobs: int = 1) -> Draft:
        """What ``submit`` would make of the submission, or of ``jobs`` such ones; nothing is copied or stored.

        Files that both its code and the job that it continues have are found by ``submit`` alone. Raises what
        ``submit`` raises.
        """
        with self._accepted(submission, jobs) as fetched:
            spec = self._spec(fetched)
            modules = [] if fetched.code_dir is None else self.editable_modules(spec.python)
            found = Inventory()
            with self._refusals(fetched), self.rights.reading(fetched):
                if fetched.code_dir is not None:
                    with self._open_code(fetched) as (tree, found):
                        spec = replace(
                            spec,
                            warnings=spec.warnings
                            + bypass_warnings(spec, tree.root, modules, tree.python_sources(found)),
                        )
                if spec.continue_from is not None:
                    require_snapshot(self.home.run_dir(spec.continue_from), spec.continue_step)
            job = _row(fetched, spec, number=sys.maxsize)  # the last in the queue
            return Draft(job, len(found.files), found.bytes)

    @contextmanager
    def _accepted(self, submission: Submission, jobs: int = 1) -> Iterator[Submission]:
        """The submission with its code on this machine, if there is room for ``jobs`` such ones and it is valid."""
        self.require_room(submission.owner, jobs)
        with self.with_code([submission]) as (fetched,):
            if errors := self.validate(fetched):
                raise SubmissionError(errors)
            yield fetched

    def require_room(self, owner: str | None, jobs: int) -> None:
        """Refuse what the queue has no room for; rows are counted again when they are added. Raises QueueFullError."""
        self.store.queue.require_room(self.quotas.room(owner), jobs)

    @contextmanager
    def with_code(self, submissions: Sequence[Submission]) -> Iterator[list[Submission]]:
        """The submissions with their code on this machine until the end of the block. Raises what ``submit`` raises."""
        if (lack := self.home.lack_of_space()) is not None:
            advice = "delete finished jobs (rekindle delete JOB) or other files"
            raise StorageError(f"no job is accepted: {lack} on the disk of {self.home.root}: {advice}", full=True)
        if (problem := self.scheduler_problem()) is not None:
            raise BusyError(f"no job is accepted while the scheduler does not run: {problem}")
        self._check_bundles(submissions)
        try:
            with fetch_code(self.home, submissions, self.rights.git) as fetched:
                yield [self.launchers.of(each.spec).fill_in(self._with_mirror(each)) for each in fetched]
        except OSError as error:
            raise_if_lacking(error)
            raise storage_error(self.home.root, error) from error

    def _with_mirror(self, submission: Submission) -> Submission:
        spec = submission.spec
        default = self.mirror if spec.replay is None else None
        return replace(submission, spec=replace(spec, mirror=spec.mirror or default))

    def _foreign_mirror(self, submission: Submission) -> list[FieldError]:
        """The copier has the rights of the server, which an isolated job must not use for any other place."""
        url, own = submission.spec.mirror, self.mirror
        if url in (None, own) or not self.rights.isolation.hides_the_server:
            return []
        if own is not None and url is not None and url.startswith(f"{own.rstrip('/')}/"):
            return []
        rule = f"must be below {own} (setting mirror), since jobs are isolated" if own else "needs the setting mirror"
        return [FieldError("mirror", rule, url)]

    def _check_bundles(self, submissions: Sequence[Submission]) -> None:
        """Raises SubmissionError for a bundle of somebody else, as for one that does not exist."""
        named = {(each.origin.bundle, each.readable_by) for each in submissions if each.origin and each.readable_by}
        for bundle, person in named:
            if bundle is not None and person is not None and not self.store.access.has_bundle(bundle, person):
                raise unknown_bundle(bundle)

    def validate(self, submission: Submission) -> list[FieldError]:
        """Every rule that the submission violates here; nothing of code that its owner may not read is looked at."""
        if errors := self._foreign_code(submission):
            return errors
        launcher = self.launchers.of(submission.spec)
        with self.rights.reading(submission):
            placement = launcher.place(submission)
            errors = validate(submission, placement, lambda job_id: self._readable_job(submission, job_id) is not None)
        if submission.spec.continue_step is not None and submission.spec.continue_from is None:
            rule = "needs continue_from, the job that has the snapshot"
            errors.append(FieldError("continue_step", rule, submission.spec.continue_step))
        if (old := submission.spec.continue_from) is not None:
            errors += check_stopped(self._readable_job(submission, old) if is_job_id(old) else None, old, self.home)
        errors += self._foreign_mirror(submission)
        errors += priority_errors(submission.spec.priority, submission.max_priority, submission.owner)
        errors += quota_errors(placement.spec, submission.owner, self.quotas)
        return errors + launcher.validate(placement.spec)

    def _placed(self, submission: Submission) -> JobSpec:
        """The script may be read for that. Raises SubmissionError."""
        with self.rights.reading(submission):
            return self.launchers.of(submission.spec).place(submission).spec

    def _readable_job(self, submission: Submission, job_id: str) -> Job | None:
        job = self.store.job(job_id)
        return job if job is not None and submission.readable_by in (None, job.owner) else None

    def _foreign_code(self, submission: Submission) -> list[FieldError]:
        """Directories that hold other people's jobs are not copied for somebody who must not read these."""
        code = submission.code_dir
        if submission.readable_by is None or submission.origin is not None or code is None:
            return []
        named = {"code.path": code}
        if submission.spec.kind is TargetKind.SCRIPT:
            named["script"] = code / submission.spec.target
        home = Path(os.path.realpath(self.home.root))
        inside = [each for each in named.items() if Path(os.path.realpath(each[1])).is_relative_to(home)]
        rule, hint = "must not be in the server's home", "copy the code elsewhere"
        return [FieldError(name, rule, str(path), hint) for name, path in inside[:1]]

    def prepare(
        self, submission: Submission, *, number: int | None = None, first: Job | None = None, **columns: Any
    ) -> Job:
        """A job that lacks its row, and then ``confirm``. Precondition: it is valid. Raises what ``submit`` raises.

        ``number``: one that is reserved for it. ``first``: the job of the same experiment that was prepared first,
        which has the same code; what is written after it is durable only after ``sync_file_system``.
        """
        spec = self._spec(submission)
        number = self.store.reserve_numbers() if number is None else number
        job = _row(submission, spec, number=number, **columns)
        with self._refusals(submission):
            self._build_run_dir(job, submission, spec, first)
        return job

    def _spec(self, submission: Submission) -> JobSpec:
        """The spec with everything filled in, and the values of ``env``. Raises SubmissionError."""
        return replace(self._placed(submission), target=submission.target_in_copy, code=_origin(submission))

    @contextmanager
    def _refusals(self, submission: Submission) -> Iterator[None]:
        """Within, what the code or the disk raises becomes a SubmissionError or StorageError."""
        try:
            yield
        except CodeCopyError as error:
            raise SubmissionError(
                [FieldError(submission.code_field, error.rule, submission.code_name, error.hint)]
            ) from error
        except OSError as error:
            raise_if_lacking(error)
            if isinstance(error, PermissionError) and not str(error.filename).startswith(str(self.home.root)):
                rule = f"must be readable throughout by the user of the job ({error})"
                raise SubmissionError([FieldError(submission.code_field, rule, submission.code_name)]) from error
            raise storage_error(self.home.runs, error) from error

    def discard(self, job: Job) -> None:
        """Undo ``prepare``."""
        shutil.rmtree(self.home.new_run(job.id).root, ignore_errors=True)

    def confirm(self, jobs: Sequence[Job]) -> None:
        """Give the directories of ``jobs``, which have their rows, their names. Raises StorageError, and undoes all."""
        try:
            confirm_runs(self.home, [job.id for job in jobs])
        except OSError as error:
            self.store.recovery.withdraw([job.id for job in jobs])
            for job in jobs:
                shutil.rmtree(self.home.run_dir(job.id).root, ignore_errors=True)
                self.discard(job)
            raise storage_error(self.home.runs, error) from error
        self.store.confirmed()

    def _build_run_dir(self, job: Job, submission: Submission, spec: JobSpec, first: Job | None) -> None:
        """``spec`` has the values of ``env``, the job's own has not."""
        new = self.home.new_run(job.id)
        try:
            new.root.mkdir(mode=0o700)
            is_copied = self._copy_code_of(first, job, new)
            if submission.is_fetched_by_server and not is_copied:  # and readable by it alone
                self._copy_code(submission, new)
                is_copied = True
            with self.rights.building(submission, new.root):
                if submission.code_dir is None:
                    new.code.mkdir(mode=0o700)
                elif not is_copied:
                    self._copy_code(submission, new)
                if submission.replay_hook is not None:
                    atomic_write(new.replay_hook, submission.replay_hook.encode())
                if job.spec.continue_from is not None:
                    self._continue(job.spec.continue_from, new, job.id, job.spec.continue_step)
            if submission.code_dir is not None:
                modules = self.editable_modules(job.spec.python)
                job.spec = replace(job.spec, warnings=spec.warnings + bypass_warnings(spec, new.code, modules))
            if spec.env:
                write_json(new.environment, spec.env, durable=first is None)
            write_json(new.spec, stored_spec(job), durable=first is None)
            if first is None:
                fsync_directory(self.home.runs)
        except BaseException:
            shutil.rmtree(new.root, ignore_errors=True)
            raise

    @contextmanager
    def _open_code(self, submission: Submission) -> Iterator[tuple[CodeTree, Inventory]]:
        """The files to copy. Raises SubmissionError where the script is not among them, and CodeCopyError."""
        spec = submission.spec
        options = CopyOptions(spec.exclude, gitignore=spec.gitignore, keep_links=spec.keep_links)
        check = partial(self._check_copied, submission) if submission.origin is None else None
        source = Path(submission.code_dir or "")
        with open_code(source, exclude=self.home.root, options=options, check=check) as (tree, found):
            if spec.kind is TargetKind.SCRIPT and not found.has_file(Path(submission.target_in_copy)):
                hint = f"change exclude, gitignore or {IGNORE_FILE}, which name it"
                raise SubmissionError([FieldError("script", "must not be excluded", submission.target_in_copy, hint)])
            yield tree, found

    def _copy_code(self, submission: Submission, new: RunDir) -> None:
        with self._open_code(submission) as (tree, found):
            copy_code(tree, found, new.code)
        write_json(new.code_manifest, take_manifest(new.code).to_json())

    def _copy_code_of(self, first: Job | None, job: Job, new: RunDir) -> bool:
        """Copy the code of ``first``, if it is the same: its copy is still the server's alone, and needs no rules."""
        if first is None or _copied(first.spec) != _copied(job.spec):
            return False
        copy = self.home.new_run(first.id)
        if not copy.code_manifest.exists():  # without code
            return False
        shutil.copytree(copy.code, new.code, symlinks=True)
        shutil.copy2(copy.code_manifest, new.code_manifest)
        return True

    def _check_copied(self, submission: Submission, root: Path) -> None:
        """The path that was validated may lead elsewhere by now. Raises SubmissionError."""
        if errors := self._foreign_code(replace(submission, code=root)):
            raise SubmissionError(errors)
        self.rights.check_code(root)

    def _continue(self, old_id: str, new: RunDir, job_id: str, last_step: int | None) -> None:
        """It must not have been resumed meanwhile, either. Raises SubmissionError and OSError."""
        before = self.store.job(old_id)
        try:
            continue_run(self.home.run_dir(old_id), new, job_id, last_step)
        except CodeCopyError as error:
            raise SubmissionError([FieldError("continue_from", error.rule, old_id, error.hint)]) from error
        except PermissionError as error:
            rule = f"must be a job whose files the user of this one may read ({error})"
            raise SubmissionError([FieldError("continue_from", rule, old_id)]) from error
        after = self.store.job(old_id)
        errors = check_stopped(after, old_id, self.home)
        if before is None or after is None or before.attempt != after.attempt:
            errors = errors or [FieldError("continue_from", "was resumed or deleted meanwhile", old_id, "submit again")]
        if errors:
            raise SubmissionError(errors)

    def _insert(self, job: Job) -> Job:
        """The row of ``job``, or that of another request with the same key that was faster."""
        try:
            room = self.quotas.room(job.owner)
            inserted = self.store.add_job(job, job.idempotency_key, numbered=True, room=room)
        except UnknownCommitError:
            raise  # the row may be there, and then it needs its directory
        except BaseException:
            self.discard(job)
            raise
        if inserted is job:
            self.confirm([job])
        else:
            self.discard(job)
        return inserted


def storage_error(directory: Path, error: OSError) -> StorageError:
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    advice = "free some space on its disk" if full else "check its disk and its permissions"
    return StorageError(f"{directory}: cannot be written ({error}): {advice}", full=full)


def new_job(job_id: str, spec: JobSpec, **columns: Any) -> Job:
    """The row of a job that was just submitted."""
    changeable = {"name": spec.name, "priority": spec.priority, "max_failures": spec.max_failures}
    return Job(id=job_id, spec=spec, **{**changeable, "device_check": {} if spec.check_device else None, **columns})


def _row(submission: Submission, spec: JobSpec, *, number: int, **columns: Any) -> Job:
    """The new row, which has no values of ``env``."""
    return new_job(
        new_job_id(),
        without_values(spec),
        number=number,
        created_at=time.time(),
        owner=submission.owner,
        intent=JobIntent.HOLD if submission.hold else JobIntent.RUN,
        **columns,
    )


def _copied(spec: JobSpec) -> tuple[object, ...]:
    """What decides which files of an experiment's code are copied, and whether they may be."""
    return spec.kind, spec.target, spec.exclude, spec.gitignore, spec.keep_links


def _origin(submission: Submission) -> dict[str, str]:
    """The requested source of the code: ``path``, ``bundle``, or ``git`` with its commit."""
    if submission.origin is not None:
        known = asdict(submission.origin) | dict(submission.revision)
        return {name: value for name, value in known.items() if value is not None}
    return {} if submission.code_dir is None else {"path": str(submission.code_dir), **submission.revision}
