"""Where the code of a submission comes from: a directory of this machine, an uploaded bundle or a git repository."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from rekindle_service.config.home import Home
from rekindle_service.jobs.packaging.bundles import Bundles
from rekindle_service.jobs.submission import CodeOrigin, FieldError, Submission, SubmissionError


@dataclass(frozen=True, slots=True)
class GitRights:
    """With what rights git runs; without arguments, with those of the server.

    A repository of this machine may have links to whatever git can read, and git quotes what it cannot parse.
    """

    command: Sequence[str] = ()  # that starts git
    environment: Mapping[str, str] | None = None  # None: the server's
    user: tuple[int, int, Sequence[int]] | None = None  # uid, gid and other groups


Checkout = Callable[[str, str | None, Path, GitRights], str]
"""(URL, ref, new directory, rights) → the commit that is checked out there. Raises SubmissionError."""


@contextmanager
def fetch_code(
    home: Home,
    checkout: Checkout,
    submissions: Sequence[Submission],
    rights: Callable[[Submission, Path], GitRights],
) -> Iterator[list[Submission]]:
    """The submissions with their code on this machine, until the end of the block; each origin is fetched once.

    Raises SubmissionError, and OSError of the disk.
    """
    fetched: dict[CodeOrigin | None, dict[str, Any]] = {None: {}}
    with ExitStack() as stack:
        for origin, submission in {each.origin: each for each in submissions if each.origin is not None}.items():
            if origin.bundle is not None:
                fetched[origin] = {"code": _bundle(home, origin.bundle)}
            else:
                scratch = Path(mkdtemp(dir=home.runs, prefix=".new-git-"))
                stack.callback(shutil.rmtree, scratch, ignore_errors=True)  # follows no link, unlike TemporaryDirectory
                commit = checkout(origin.git or "", origin.ref, scratch / "code", rights(submission, scratch))
                fetched[origin] = {"code": scratch / "code", "origin": replace(origin, commit=commit)}
        yield [replace(each, **fetched[each.origin]) for each in submissions]


def _bundle(home: Home, bundle_id: str) -> Path:
    directory = Bundles(home).directory(bundle_id)
    if directory is None:
        raise unknown_bundle(bundle_id)
    return directory


def unknown_bundle(bundle_id: str) -> SubmissionError:
    hint = "upload the archive with POST /api/v1/bundles, which answers with its id"
    return SubmissionError(
        [FieldError("code.bundle", "must be the id of a bundle that this server has", bundle_id, hint)]
    )
