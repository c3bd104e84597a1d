"""A job that computes steps of another one again, from the state before them."""

import ast
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from rekindle.contract.job_options import Replay, SnapshotPolicy
from rekindle.contract.outcome import OutcomeClass
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.jobs.packaging.code_manifest import read_manifest
from rekindle_service.run_readers.stored_snapshots import read_snapshots
from rekindle_service.store.tables import Job
from rekindle_service.submission import FieldError, Submission, SubmissionError, stored_values

_NEVER = 1 << 53  # steps
_MAX_HOOK = 64 << 10  # bytes
_FUNCTIONS = ("before_step", "after_step")
_NAMED_STEPS = re.compile(r"\b(?:at|after|in) steps? (\d{1,15})(?: to (\d{1,15}))?")
_SPECIAL = str.maketrans({each: f"\\{each}" for each in "\\*?[]!# "})  # in a pattern


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps to compute again: from ``first`` to ``last``, both included."""

    first: int
    last: int


def failed_steps(job: Job, attempts: Sequence[AttemptInfo]) -> Steps:
    """The steps that an outcome names: of a loss that is not finite, or of ranks that diverged.

    Raises SubmissionError.
    """
    outcome = attempts[-1].outcome if attempts else None
    named = outcome is not None and outcome.klass in (OutcomeClass.NAN, OutcomeClass.DIVERGENCE)
    if outcome is not None and named and (found := _NAMED_STEPS.search(outcome.message)) is not None:
        return Steps(int(found[1]), int(found[2] or found[1]))
    rule = f"is needed, since the outcome of job {job.number} names none"
    raise SubmissionError([FieldError("step", rule, None, "name one: --step N")])


@dataclass(frozen=True, slots=True)
class Additions:
    """What a replay does in its first step besides computing it; ``rank``: only there, by default on all."""

    record: bool = False
    hook: str | None = None  # text of a Python file
    pdb: bool = False
    rank: int | None = None

    def errors(self, ranks: int) -> list[FieldError]:
        """The rules that they violate in a replay of this number of ranks."""
        found = [] if self.hook is None else list(_hook_errors(self.hook))
        if self.rank is not None and self.rank >= ranks:
            rule = f"must be a rank of the replay: {'0' if ranks == 1 else f'0 to {ranks - 1}'}"
            found.append(FieldError("rank", rule, self.rank, "the replay has the ranks of the original"))
        return found


def _hook_errors(text: str) -> Iterator[FieldError]:
    size = len(text.encode(errors="replace"))
    if size > _MAX_HOOK:
        hint = "let it import what is in the code of the job"
        yield FieldError("script", f"must have at most {_MAX_HOOK:,} bytes", f"{size:,} bytes", hint)
        return
    try:
        tree = ast.parse(text, "script")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        rule = f"must be Python {sys.version_info[0]}.{sys.version_info[1]}: {error or type(error).__name__}"
        yield FieldError("script", rule, getattr(error, "text", None), "correct the file")
        return
    defined = {each.name for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)}
    if defined.isdisjoint(_FUNCTIONS):
        hint = "the name of one function is enough"
        yield FieldError("script", "must define before_step(step) or after_step(step)", ", ".join(defined), hint)


def replay_of(
    job: Job, run_dir: RunDir, attempts: Sequence[AttemptInfo], steps: Steps, device: str | None, additions: Additions
) -> Submission:
    """The request for the replay: code copy, arguments, environment, interpreter and ranks of the original.

    It continues from the latest snapshot before the steps, else begins at the beginning. Raises SubmissionError where
    no attempt has computed ``steps.first``, or the code copy is gone.
    """
    attempt = attempt_with(steps.first, attempts, job)
    start = snapshot_before(run_dir, steps.first)
    manifest = read_manifest(run_dir)
    if manifest is not None and not run_dir.code.is_dir():
        rule, hint = "must still have its code copy", f"submit the code again with --continue {job.number}"
        raise SubmissionError([FieldError("job", rule, job.id, hint)])
    if errors := additions.errors(attempt.world_size):
        raise SubmissionError(errors)
    nodes = max(1, len(attempt.hosts))
    ranks = attempt.world_size if job.spec.slurm is None else attempt.world_size // nodes * nodes
    spec = replace(
        job.spec,
        name=f"replay of {job.name}"[:200],
        env=stored_values(run_dir),
        min_ranks=ranks,
        max_ranks=ranks,
        device=device or job.spec.device,
        after=[],
        after_any=[],
        resizable=False,
        max_failures=1,
        snapshot=SnapshotPolicy(every_steps=_NEVER),
        digest=1,
        last_step=steps.last,
        check_device=False,
        record_step=steps.first if additions.record else None,
        time_limit=None,
        mirror=None,
        mirror_limit=None,
        mirror_files=[],
        require_mirror=False,
        continue_from=None if start is None else job.id,
        continue_step=start,
        exclude=[] if manifest is None else list(_written_since(run_dir.code, manifest.files)),
        gitignore=False,
        keep_links=True,
        code={},
        warnings=[],
        replay=Replay(job.id, steps.first, additions.hook is not None, additions.pdb, additions.rank),
    )  # fmt: skip
    return Submission(spec, code=None if manifest is None else run_dir.code, replay_hook=additions.hook)


def snapshot_before(run_dir: RunDir, step: int) -> int | None:
    """The step of the latest snapshot before ``step``."""
    verified = (each.step for each in read_snapshots(run_dir.root, run_dir.snapshots) if each.verified)
    return max((each for each in verified if each < step), default=None)


def attempt_with(step: int, attempts: Sequence[AttemptInfo], job: Job) -> AttemptInfo:
    """The latest attempt that has computed ``step``. Raises SubmissionError."""
    for attempt in reversed(attempts):
        if (attempt.resumed_from_step or 0) < step <= (attempt.last_step or 0):
            return attempt
    reached = max((attempt.last_step or 0 for attempt in attempts), default=0)
    rule = f"must be a step that job {job.number} has computed{f', from 1 to {reached}' if reached else ''}"
    hint = "replay needs a job that has stopped, and a script that uses rekindle.Run"
    raise SubmissionError([FieldError("step", rule, step, hint)])


def _written_since(code: Path, submitted: Collection[str]) -> Iterator[str]:
    """Patterns of what the script has written into the code copy: its files, or directories without submitted ones."""
    kept = {parent for name in submitted for parent in (name, *map(str, PurePosixPath(name).parents))}
    directories = [PurePosixPath()]
    while directories:
        directory = directories.pop()
        for entry in sorted((code / directory).iterdir()):
            path = directory / entry.name
            if str(path) not in kept:
                yield f"/{str(path).translate(_SPECIAL)}"
            elif entry.is_dir() and not entry.is_symlink():
                directories.append(path)
