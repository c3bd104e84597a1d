"""Where the code of a submission comes from: a folder of this machine, an uploaded bundle or a git repository."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rekindle_service.config.home import Home
from rekindle_service.jobs.packaging.bundles import Bundles
from rekindle_service.jobs.submission import CodeOrigin, FieldError, Submission, SubmissionError

Checkout = Callable[[str, str | None, Path], str]
"""(URL, ref, new folder) → the commit that lies in the folder now. Raises SubmissionError."""


@dataclass(frozen=True, slots=True)
class CodeSources:
    """Brings code to this machine."""

    home: Home
    checkout: Checkout

    @contextmanager
    def with_code(self, submissions: Sequence[Submission]) -> Iterator[list[Submission]]:
        """The submissions with their code in a folder, until the end of the block; each origin is with_code once.

        Raises SubmissionError, and OSError of the disk.
        """
        folders: dict[CodeOrigin, tuple[Path, CodeOrigin]] = {}
        with ExitStack() as stack:
            for origin in {each.origin for each in submissions if each.origin is not None}:
                folders[origin] = self._bundle(origin) if origin.bundle is not None else self._clone(origin, stack)
            yield [_with_code(each, folders) for each in submissions]

    def _bundle(self, origin: CodeOrigin) -> tuple[Path, CodeOrigin]:
        folder = Bundles(self.home).folder(origin.bundle or "")
        if folder is None:
            hint = "upload the archive with POST /api/v1/bundles, which answers with its id"
            rule = "must be the id of a bundle that this server has"
            raise SubmissionError([FieldError("code.bundle", rule, origin.bundle, hint)])
        return folder, origin

    def _clone(self, origin: CodeOrigin, stack: ExitStack) -> tuple[Path, CodeOrigin]:
        scratch = TemporaryDirectory(dir=self.home.runs, prefix=".new-git-", ignore_cleanup_errors=True)
        folder = Path(stack.enter_context(scratch)) / "code"
        commit = self.checkout(origin.git or "", origin.ref, folder)
        return folder, replace(origin, commit=commit)


def _with_code(submission: Submission, folders: dict[CodeOrigin, tuple[Path, CodeOrigin]]) -> Submission:
    if submission.origin is None:
        return submission
    folder, origin = folders[submission.origin]
    return replace(submission, code=folder, origin=origin)
