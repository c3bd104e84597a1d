"""A request to run a job, the values that it must not show, and the errors of one that cannot be accepted.

Any value of an environment variable may be a secret, so none is stored in a row, a spec or an answer. They are stored
once, in ``environment.json`` of the run directory, readable by its owner only. A reference to a file or to a variable
of the server is stored instead of a value, and resolved whenever a keeper starts.
"""

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rekindle.contract.environment import ENV_FILES
from rekindle.contract.field_texts import Described
from rekindle.contract.files import read_json
from rekindle.contract.job import HIDDEN, JobSpec
from rekindle.contract.job_options import TargetKind
from rekindle.contract.run_dir.paths import RunDir


@dataclass(frozen=True, slots=True)
class CodeOrigin:
    """Code that is fetched: a bundle, or a commit of a git repository."""

    bundle: str | None = None
    git: str | None = None
    ref: str | None = None
    commit: str | None = None  # what ``ref`` meant when it was fetched

    @property
    def is_local(self) -> bool:
        """Whether it is a repository of this machine, which may be any file of it."""
        return (self.git or "").startswith("file:")


@dataclass(frozen=True, slots=True)
class Submission:
    """A request of the right types; ``jobs.validation`` and its launcher check it.

    ``spec`` has no ``code`` yet, perhaps no ``python`` and the device "auto"; ``jobs.submitter`` fills them in.
    """

    spec: JobSpec
    code: Path | None = None  # directory to copy; None: the directory of a script given by its absolute path
    hold: bool = False  # wait in the queue until the job is resumed
    has_size: bool = True  # False where the request says nothing of ranks and devices per rank
    owner: str | None = None  # who submits it
    max_priority: int | None = None  # the highest that its owner may give; None: any
    readable_by: str | None = None  # it may name jobs and bundles of this owner only; None: of everybody
    origin: CodeOrigin | None = None  # what ``code`` is fetched from, see ``jobs.packaging.sources``
    revision: Mapping[str, str] = field(default_factory=dict)  # ``commit`` and ``dirty`` of a directory or bundle
    replay_hook: str | None = None  # text of ``RunDir.replay_hook``

    @property
    def code_dir(self) -> Path | None:
        """The directory to copy, or None for a job without code."""
        if self.code is None and self.spec.kind is TargetKind.SCRIPT:
            return Path(os.path.normpath(self.spec.target)).parent
        return self.code

    @property
    def is_fetched_by_server(self) -> bool:
        """Whether the server has made the code directory, so that it has nothing but what was sent or downloaded."""
        return self.origin is not None and not self.origin.is_local

    @property
    def target_in_copy(self) -> str:
        """A script's path relative to the code directory; anything else as it is."""
        directory = self.code_dir
        if self.spec.kind is not TargetKind.SCRIPT or directory is None:
            return self.spec.target
        return os.path.relpath(directory / self.spec.target, directory)

    @property
    def code_name(self) -> str:
        """How messages name the code."""
        match self.origin:
            case CodeOrigin(bundle=str(bundle)):
                return f"the bundle {bundle}"
            case CodeOrigin(git=str(git), ref=ref):
                return f"the repository {git}" + (f" at {ref}" if ref else "")
            case _:
                return f"the code directory {self.code_dir}"

    @property
    def code_field(self) -> str:
        """The field of the request that names the code."""
        if self.origin is None:
            return "code.path"
        return "code.bundle" if self.origin.bundle is not None else "code.git"


@dataclass(frozen=True, slots=True)
class FieldError(Described):
    """One field that violates one rule."""

    field: str
    """Dotted path of the field in the request, such as `ranks.max`."""
    rule: str
    """The rule that it violates."""
    value: Any
    """The value that was sent, truncated after 200 characters; null where it may be a secret."""
    hint: str = ""
    """What to do, such as the nearest known name; "" where nothing can be suggested."""


class SubmissionError(Exception):
    """The request cannot become a job; ``errors`` names every rule that it violates."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(f"{error.field}: {error.rule}" for error in errors))
        self.errors = errors


class BusyError(Exception):
    """Too many requests of this kind are being processed; the same request may succeed a little later."""


LACKING = {
    errno.EMFILE: "open files (the limit of this process)",
    errno.ENFILE: "open files (the limit of this machine)",
    errno.ENOMEM: "memory",
    errno.EAGAIN: "processes or threads",
    errno.ENOBUFS: "memory for connections",
}
"""What this machine lacks now and may have later, by the number of an OSError: the request is to be sent again."""


def raise_if_lacking(error: OSError) -> None:
    """Raise ``error`` again where it is of this kind: it is no finding about a file or a program."""
    if error.errno in LACKING:
        raise error


_SECRET_FIELDS = frozenset({"env", "token"})  # of requests


class MissingVariableError(OSError):
    """A variable of a job has no value any more; the message names it."""


def without_values(spec: JobSpec) -> JobSpec:
    """``spec`` as it is stored."""
    return replace(spec, env=dict.fromkeys(spec.env, HIDDEN))


def stored_values(run_dir: RunDir) -> dict[str, str]:
    """The values that a job was submitted with, by name; none where they are lost."""
    stored = read_json(run_dir.environment, root=run_dir.root)
    return {name: value for name, value in stored.items() if isinstance(value, str)} if isinstance(stored, dict) else {}


def job_variables(spec: JobSpec, values: Mapping[str, str], inherited: Mapping[str, str]) -> dict[str, str]:
    """What the job sets. Files are read by its keeper, with the rights of the job. Raises MissingVariableError."""
    if lost := [name for name in spec.env if name not in values]:
        raise MissingVariableError(f"the values of {', '.join(lost)} are lost (environment.json): submit the job again")
    variables = {name: values[name] for name in spec.env}
    for name, source in spec.env_from.items():
        if (origin := source.get("from")) is None:
            continue
        if origin not in inherited:
            raise MissingVariableError(
                f"env.{name} refers to the variable {origin}, which the server does not have or does not pass to jobs: "
                "set it where the server is started; isolated jobs get it with the setting pass_env only"
            )
        variables[name] = inherited[origin]
    files = {name: source["file"] for name, source in spec.env_from.items() if "file" in source}
    return {**variables, ENV_FILES: json.dumps(files)} if files else variables


def without_password(url: str) -> str:
    """A refused git URL as an answer may repeat it."""
    head, separator, rest = url.partition("://")
    user, at, host = (rest if separator else head).rpartition("@")
    if not at or "/" in user:
        return url
    return f"{head + separator if separator else ''}{HIDDEN}@{host}"


_BACK_ENDS = {"": "fsspec", "s3": "s3fs", "gs": "gcsfs", "sftp": "paramiko"}  # modules of the extra [remote]


def mirror_problem(url: str) -> str | None:
    """Why nothing can be mirrored to ``url``, as a rule; the place itself is not asked."""
    try:
        parts = urlsplit(url)
        has_password = parts.password is not None
    except ValueError:
        return "must be a URL"
    is_place = bool(parts.netloc) if parts.scheme else url.startswith("/")
    unclear = "::" in url or "?" in url or "#" in url or ".." in parts.path.split("/") or not url.isprintable()
    if parts.scheme not in _BACK_ENDS or not is_place or unclear:
        return "must be s3://BUCKET/PATH, gs://BUCKET/PATH, sftp://USER@HOST/PATH or an absolute path"
    if has_password:
        return "must have no password: credentials belong into the environment of the server"
    if any(find_spec(module) is None for module in ("fsspec", _BACK_ENDS[parts.scheme])):
        return "needs the extra: pip install 'rekindle-torchrun[remote]', for the server"
    return None


def hide_secrets(value: Any, location: tuple[Any, ...] = ()) -> Any:
    """A refused value as an answer may repeat it: nothing of a variable's value, and of no token."""
    if not _SECRET_FIELDS.isdisjoint(map(str, location)):
        return HIDDEN
    if isinstance(value, dict):
        return {key: hide_secrets(each, (key,)) for key, each in value.items()}
    if isinstance(value, list):
        return [hide_secrets(each) for each in value]
    return value
