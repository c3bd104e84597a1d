"""Validation of a submission. Nothing is changed here."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from rekindle.contract.job import HIDDEN
from rekindle.contract.job_options import TargetKind
from rekindle.contract.run_dir.placeholders import KNOWN, unknown_placeholders
from rekindle.recipes.catalog import RECIPES
from rekindle_service.jobs.packaging.ignore_rules import PatternError, parse_patterns
from rekindle_service.launch.placement import Placement, placement_errors
from rekindle_service.submission import FieldError, Submission, mirror_problem, without_password
from rekindle_service.suggestions import did_you_mean

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_SHELL_HINT = "rekindle starts torchrun itself: submit the Python script that it starts, with its processes as ranks"
_NO_PYTHON = {
    **dict.fromkeys((".sh", ".bash", ".zsh", ".slurm", ".sbatch"), _SHELL_HINT),
    ".ipynb": "convert the notebook first: jupyter nbconvert --to script",
}
_PROJECT_DEPTH = 3  # parts of a path: no directory above, such as /home, is one project
_RESERVED_VARIABLES = ("REKINDLE_", "PET_", "TORCHELASTIC_")
_RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")


def validate(submission: Submission, placement: Placement, job_exists: Callable[[str], bool]) -> list[FieldError]:
    """Every violated rule that does not depend on the launcher, in the order of the request's fields."""
    return [
        *_target_rules(submission),
        *_text_rules(submission),
        *_placeholder_rules(submission),
        *_pattern_rules(submission),
        *_standby_rules(submission),
        *_mirror_rules(submission),
        *placement_errors(placement),
        *_dependency_rules(submission, job_exists),
    ]


def _dependency_rules(submission: Submission, job_exists: Callable[[str], bool]) -> Iterator[FieldError]:
    """They name jobs that were submitted before, so that no two wait for each other."""
    spec = submission.spec
    for name, job_ids in (("after", spec.after), ("after_any", spec.after_any)):
        for job_id in job_ids:
            if not job_exists(job_id):
                yield FieldError(name, "must name jobs that exist", job_id, "list them with: rekindle ps")


def _target_rules(submission: Submission) -> Iterator[FieldError]:
    code, target = submission.code, submission.spec.target
    if code is not None and not (code.is_absolute() and _exists(code.is_dir)):
        hint = "give the absolute path of a directory on the server's machine"
        yield FieldError("code.path", "must be an existing directory", str(code), hint)
        return
    match submission.spec.kind:
        case TargetKind.SCRIPT:
            yield from _script_rules(target, code, submission)
        case TargetKind.MODULE:
            if not _MODULE.fullmatch(target):
                yield FieldError("module", "must be a module's dotted name", target, 'such as "package.train"')
        case TargetKind.RECIPE:
            if target in RECIPES:
                yield from _option_rules(target, "args", submission.spec.args)
                yield from _option_rules(target, "on_restart", submission.spec.on_restart)
            else:
                yield FieldError("recipe", "unknown recipe", target, did_you_mean(target, list(RECIPES)))


def _option_rules(recipe: str, field: str, args: Sequence[str]) -> Iterator[FieldError]:
    """Unknown options: the recipe would reject them as well, but only after the job has left the queue."""
    offered = [f"--{option.name}" for option in RECIPES[recipe].options]
    for option in (arg.partition("=")[0] for arg in args if arg.startswith("--")):
        if option not in (*offered, "--", "--help"):
            yield FieldError(field, f"must be options of the recipe {recipe}", option, did_you_mean(option, offered))


def _script_rules(script: str, code: Path | None, submission: Submission) -> Iterator[FieldError]:
    location = submission.code_name
    if "\0" in script:
        yield FieldError("script", "must not contain a NUL character", script)
        return
    if code is None and not PurePosixPath(script).is_absolute():
        hint = "give its absolute path, or the directory as code.path (in the form: Advanced, Code from)"
        yield FieldError("script", "is relative to the code directory, but none is given", script, hint)
        return
    directory = code or Path(script).parent
    file = Path(os.path.normpath(directory / script))
    if PurePosixPath(script).suffix in _NO_PYTHON:
        yield FieldError("script", "must be a script of Python", script, _NO_PYTHON[PurePosixPath(script).suffix])
    elif not file.is_relative_to(os.path.normpath(directory)):
        yield FieldError("script", f"must be in {location}", script, _outside_hint(directory, file, submission))
    elif not _exists(file.is_file):
        near = ", ".join(sorted(one.name for one in directory.glob("*.py"))[:5]) if _exists(directory.is_dir) else ""
        yield FieldError("script", f"not found in {location}", script, f"found there: {near}" if near else "")
    elif not _exists(lambda: Path(os.path.realpath(file)).is_relative_to(os.path.realpath(directory))):
        yield FieldError("script", f"must not be a link out of {location}", script, "copy the file there")


def _outside_hint(directory: Path, file: Path, submission: Submission) -> str:
    common = Path(os.path.commonpath([os.path.normpath(directory), file]))
    if submission.origin is not None or len(common.parts) < _PROJECT_DEPTH or not _exists(file.is_file):
        return "give its path relative to that directory"
    return f"submit code.path {common} with script {file.relative_to(common)}, so that the script is copied, too"


def _exists(check: Callable[[], bool]) -> bool:
    """What this server may not read does not exist for it."""
    try:
        return check()
    except OSError:
        return False


def _text_rules(submission: Submission) -> Iterator[FieldError]:
    for field, arguments in (("args", submission.spec.args), ("on_restart", submission.spec.on_restart)):
        if any("\0" in argument for argument in arguments):
            yield FieldError(field, "must not contain a NUL character", arguments)
    spec = submission.spec
    for name, value in (*spec.env.items(), *((each, "") for each in spec.env_from)):
        if not _VARIABLE.fullmatch(name):
            yield FieldError("env", "a name consists of letters, digits and _ and begins with no digit", name)
        elif name.startswith(_RESERVED_VARIABLES) or name in _RANK_VARIABLES:
            hint = f"choose a name that begins with none of {', '.join(_RESERVED_VARIABLES)}"
            if name in _RANK_VARIABLES:
                hint = "ranks, devices_per_rank and launch decide"
            yield FieldError("env", "variables of rekindle and torchrun cannot be set", name, hint)
        if "\0" in value:
            yield FieldError(f"env.{name}", "must not contain a NUL character", HIDDEN)


def _placeholder_rules(submission: Submission) -> Iterator[FieldError]:
    spec = submission.spec
    for field, arguments in (("args", spec.args), ("on_restart", spec.on_restart)):
        for text in unknown_placeholders(arguments, conditions=field == "on_restart"):
            rule = f"{text} is no placeholder; there are {KNOWN}"
            hint = f"write {{{text}}} for the text {text}"
            if text.startswith("{exists:"):
                hint = "it must be an argument of its own in on_restart, which is then passed only if the file exists"
            yield FieldError(field, rule, text, hint)


def _standby_rules(submission: Submission) -> Iterator[FieldError]:
    spec = submission.spec
    if spec.standby and spec.slurm is not None:
        yield FieldError("standby", "must not be set for a job on Slurm", True, "omit it")
    elif spec.standby and not spec.warm:
        yield FieldError("standby", "needs a warm start", True, "omit warm=false (--cold)")


def _mirror_rules(submission: Submission) -> Iterator[FieldError]:
    spec = submission.spec
    if spec.mirror is None:
        needing = {"mirror_limit": spec.mirror_limit, "mirror_files": spec.mirror_files}
        for name, value in {**needing, "require_mirror": spec.require_mirror}.items():
            if value:
                yield FieldError(name, "needs mirror, the URL to copy to", value, "pass --mirror URL")
    elif (problem := mirror_problem(spec.mirror)) is not None:
        yield FieldError("mirror", problem, without_password(spec.mirror))
    for pattern in spec.mirror_files:
        if pattern.startswith("/") or ".." in PurePosixPath(pattern).parts:
            yield FieldError("mirror_files", "must be relative to the code directory", pattern, 'such as "out/*.pt"')


def _pattern_rules(submission: Submission) -> Iterator[FieldError]:
    for pattern in submission.spec.exclude:
        try:
            parse_patterns([pattern], "exclude")
        except PatternError:
            yield FieldError("exclude", "must be a pattern as in a .gitignore", pattern, 'such as "data/" or "*.ckpt"')
