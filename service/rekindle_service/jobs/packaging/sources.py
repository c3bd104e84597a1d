"""Where the code of a submission comes from: a directory of this machine, an uploaded bundle or a git repository."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rekindle_service.config.home import Home
from rekindle_service.jobs.packaging.bundles import Bundles
from rekindle_service.jobs.submission import CodeOrigin, FieldError, Submission, SubmissionError

Checkout = Callable[[str, str | None, Path], str]
"""(URL, ref, new directory) → the commit that is checked out there. Raises SubmissionError."""


@contextmanager
def fetch_code(home: Home, checkout: Checkout, submissions: Sequence[Submission]) -> Iterator[list[Submission]]:
    """The submissions with their code on this machine, until the end of the block; each origin is fetched once.

    Raises SubmissionError, and OSError of the disk.
    """
    fetched: dict[CodeOrigin | None, dict[str, Any]] = {None: {}}
    with ExitStack() as stack:
        for origin in {each.origin for each in submissions if each.origin is not None}:
            if origin.bundle is not None:
                fetched[origin] = {"code": _bundle(home, origin.bundle)}
            else:
                scratch = TemporaryDirectory(dir=home.runs, prefix=".new-git-", ignore_cleanup_errors=True)
                directory = Path(stack.enter_context(scratch)) / "code"
                commit = checkout(origin.git or "", origin.ref, directory)
                fetched[origin] = {"code": directory, "origin": replace(origin, commit=commit)}
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
