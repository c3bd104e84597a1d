"""Where the code of a submission comes from: a directory of this machine, an uploaded bundle or a git repository.

Uploaded code is stored unpacked under the hash of its archive.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, BinaryIO

from rekindle.contract.files import fsync_directory
from rekindle_service.config.home import Home
from rekindle_service.jobs.packaging.code_copy import MAX_BYTES, MAX_FILES
from rekindle_service.jobs.packaging.git_checkout import check_out
from rekindle_service.jobs.packaging.unpack import Limits, unpack
from rekindle_service.launch.isolation.rights import GitRights
from rekindle_service.submission import CodeOrigin, FieldError, Submission, SubmissionError

_ID = re.compile(r"sha256:([0-9a-f]{64})")
_LIMITS = Limits(bytes=MAX_BYTES, entries=2 * MAX_FILES)  # directories count, too
_PARTIAL = ".half-done-"


class Upload:
    """An archive during its upload: on disk and hashed, never in memory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.size = 0
        self._hash = hashlib.sha256()
        self._file: BinaryIO = self.archive.open("xb")

    @property
    def archive(self) -> Path:
        return self.directory / "archive"

    @property
    def id(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    def write(self, data: bytes) -> None:
        self._hash.update(data)
        self.size += len(data)
        self._file.write(data)

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class Bundles:
    """The directory of all bundles. A bundle exists whole or not at all."""

    home: Home

    @contextmanager
    def upload(self) -> Iterator[Upload]:
        """Provide an upload to write to; ``commit`` it before the end of the block, or it is removed."""
        self.home.bundles.mkdir(mode=0o700, exist_ok=True)
        with TemporaryDirectory(dir=self.home.bundles, prefix=_PARTIAL, ignore_cleanup_errors=True) as directory:
            upload = Upload(Path(directory))
            try:
                yield upload
            finally:
                upload.close()

    def commit(self, upload: Upload) -> bool:
        """Unpack and store it. False: the same bundle existed already. Raises UnpackingError and OSError."""
        upload.close()
        final = self.path(upload.id)
        if self.directory(upload.id) is not None:
            return False
        code = upload.directory / "code"
        unpack(upload.archive, code, _LIMITS)
        try:
            code.rename(final)
        except OSError:
            if self.directory(upload.id) is not None:  # another upload of the same was faster
                return False
            raise
        fsync_directory(self.home.bundles)
        return True

    def directory(self, bundle_id: str) -> Path | None:
        """The code of a bundle, which counts as used now; None for an unknown bundle."""
        if not is_bundle_id(bundle_id):
            return None
        try:
            os.utime(self.path(bundle_id))
        except FileNotFoundError:
            return None
        return self.path(bundle_id)

    def unused(self, needed: Collection[str], used_since: float) -> list[Path]:
        """The bundles that are neither ``needed``, by id, nor used since that time (seconds since the epoch)."""
        return [
            path
            for path in sorted(self.home.bundles.glob("*"))
            if is_bundle_id(bundle_id := bundle_id_of(path))
            and bundle_id not in needed
            and path.stat().st_mtime < used_since
        ]

    def remove_partial(self) -> None:
        """Remove what a killed server left partly received or removed. Precondition: no server runs in this home."""
        for path in self.home.bundles.glob(f"{_PARTIAL}*"):
            shutil.rmtree(path, ignore_errors=True)

    def path(self, bundle_id: str) -> Path:
        return self.home.bundles / bundle_id.removeprefix("sha256:")


def bundle_id_of(path: Path) -> str:
    return f"sha256:{path.name}"


def is_bundle_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


@contextmanager
def fetch_code(
    home: Home,
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
                commit = check_out(origin.git or "", origin.ref, scratch / "code", rights(submission, scratch))
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
