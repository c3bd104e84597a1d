"""Where the code of a submission comes from: a directory of this machine, an uploaded bundle or a git repository."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rekindle_service.config.home import Home
from rekindle_service.jobs.packaging.bundles import Bundles
from rekindle_service.jobs.submission import CodeOrigin, FieldError, Submission, SubmissionError

Checkout = Callable[[str, str | None, Path], str]
"""(URL, ref, new directory) → the commit that is checked out there. Raises SubmissionError."""


@dataclass(frozen=True, slots=True)
class CodeSources:
    """Brings code to this machine."""

    home: Home
    checkout: Checkout

    @contextmanager
    def with_code(self, submissions: Sequence[Submission]) -> Iterator[list[Submission]]:
        """The submissions with their code in a directory, until the end of the block; each origin is fetched once.

        Raises SubmissionError, and OSError of the disk.
        """
        directories: dict[CodeOrigin, tuple[Path, CodeOrigin]] = {}
        with ExitStack() as stack:
            for origin in {each.origin for each in submissions if each.origin is not None}:
                directories[origin] = self._bundle(origin) if origin.bundle is not None else self._clone(origin, stack)
            yield [_with_code(each, directories) for each in submissions]

    def _bundle(self, origin: CodeOrigin) -> tuple[Path, CodeOrigin]:
        directory = Bundles(self.home).directory(origin.bundle or "")
        if directory is None:
            hint = "upload the archive with POST /api/v1/bundles, which answers with its id"
            rule = "must be the id of a bundle that this server has"
            raise SubmissionError([FieldError("code.bundle", rule, origin.bundle, hint)])
        return directory, origin

    def _clone(self, origin: CodeOrigin, stack: ExitStack) -> tuple[Path, CodeOrigin]:
        scratch = TemporaryDirectory(dir=self.home.runs, prefix=".new-git-", ignore_cleanup_errors=True)
        directory = Path(stack.enter_context(scratch)) / "code"
        commit = self.checkout(origin.git or "", origin.ref, directory)
        return directory, replace(origin, commit=commit)


def _with_code(submission: Submission, directories: dict[CodeOrigin, tuple[Path, CodeOrigin]]) -> Submission:
    if submission.origin is None:
        return submission
    directory, origin = directories[submission.origin]
    return replace(submission, code=directory, origin=origin)
