"""A request to run a job, and the errors of one that cannot be accepted."""

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rekindle.contract.field_texts import DESCRIBED
from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import TargetKind


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

    ``spec`` has no ``code`` yet and perhaps the device "auto"; ``jobs.submitter`` fills both in.
    """

    spec: JobSpec
    code: Path | None = None  # directory to copy; None: the directory of a script given by its absolute path
    hold: bool = False  # wait in the queue until the job is resumed
    has_size: bool = True  # False where the request says nothing of ranks and devices per rank
    owner: str | None = None  # who submits it
    max_priority: int | None = None  # the highest that its owner may give; None: any
    readable_by: str | None = None  # it may name jobs and bundles of this owner only; None: of everybody
    origin: CodeOrigin | None = None  # what ``code`` is fetched from, see ``jobs.packaging.sources``

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
class FieldError:
    """One field that violates one rule."""

    __pydantic_config__ = DESCRIBED

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
