"""Code that was uploaded: kept unpacked, under the hash of the archive that it came in."""

import hashlib
import os
import re
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from rekindle.contract.files import fsync_directory
from rekindle_service.config.home import Home
from rekindle_service.jobs.packaging.code_copy import MOST_BYTES, MOST_FILES
from rekindle_service.jobs.packaging.unpack import Limits, unpack

KEPT_SECONDS = 7 * 24 * 3600
"""How long a bundle stays after its last use when no job refers to it."""

_ID = re.compile(r"sha256:([0-9a-f]{64})")
_LIMITS = Limits(bytes=MOST_BYTES, entries=2 * MOST_FILES)  # folders count, too
_HALF_DONE = ".half-done-"


class Upload:
    """An archive while it comes in: on disk and hashed, never in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.size = 0
        self._hash = hashlib.sha256()
        self._file: BinaryIO = self.archive.open("xb")

    @property
    def archive(self) -> Path:
        return self.folder / "archive"

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
    """The folder of all bundles. A bundle is there whole or not at all."""

    home: Home

    @contextmanager
    def upload(self) -> Iterator[Upload]:
        """Where to write what comes in; ``keep`` it before the end of the block, or it is gone."""
        self.home.bundles.mkdir(mode=0o700, exist_ok=True)
        with TemporaryDirectory(dir=self.home.bundles, prefix=_HALF_DONE, ignore_cleanup_errors=True) as folder:
            upload = Upload(Path(folder))
            try:
                yield upload
            finally:
                upload.close()

    def keep(self, upload: Upload) -> bool:
        """Unpack and keep it. False: the same bundle was there already. Raises UnpackingError and OSError."""
        upload.close()
        final = self._path(upload.id)
        if self.folder(upload.id) is not None:
            return False
        code = upload.folder / "code"
        unpack(upload.archive, code, _LIMITS)
        try:
            code.rename(final)
        except OSError:
            if self.folder(upload.id) is not None:  # another upload of the same was faster
                return False
            raise
        fsync_directory(self.home.bundles)
        return True

    def folder(self, bundle_id: str) -> Path | None:
        """The code of a bundle, which counts as used now; None for what is no bundle here."""
        if not is_bundle_id(bundle_id):
            return None
        try:
            os.utime(self._path(bundle_id))
        except FileNotFoundError:
            return None
        return self._path(bundle_id)

    def sweep(self, needed: Collection[str], now: float | None = None) -> list[str]:
        """Remove the bundles that are neither ``needed`` nor used lately; gives back their ids."""
        gone = []
        for path in self._found():
            bundle_id = f"sha256:{path.name}"
            unused = (time.time() if now is None else now) - path.stat().st_mtime
            if bundle_id not in needed and unused > KEPT_SECONDS:
                doomed = path.with_name(f"{_HALF_DONE}{path.name}")
                path.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)
                gone.append(bundle_id)
        return gone

    def remove_partial(self) -> None:
        """Remove what a killed server left half received or half removed. Precondition: no server runs here."""
        if self.home.bundles.is_dir():
            for path in self.home.bundles.glob(f"{_HALF_DONE}*"):
                shutil.rmtree(path, ignore_errors=True)

    def _found(self) -> list[Path]:
        if not self.home.bundles.is_dir():
            return []
        return [path for path in self.home.bundles.iterdir() if is_bundle_id(f"sha256:{path.name}")]

    def _path(self, bundle_id: str) -> Path:
        return self.home.bundles / bundle_id.removeprefix("sha256:")


def is_bundle_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None
