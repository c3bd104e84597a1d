"""Which code a job was submitted with, file by file, and how that of two jobs differs.

The copy itself may change, since it is where the ranks work.
"""

import difflib
import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, Self

from rekindle.contract.field_texts import Described
from rekindle.contract.files import read_json
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import read_small

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class CodeFile:
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class CodeManifest:
    """``files`` by their path in the copy. Links count by their text."""

    files: dict[str, CodeFile]

    @property
    def digest(self) -> str:
        """Equal exactly where all paths and contents are."""
        summary = hashlib.sha256()
        for path, file in sorted(self.files.items()):
            summary.update(f"{file.sha256} {len(os.fsencode(path))} ".encode() + os.fsencode(path))
        return f"sha256:{summary.hexdigest()}"

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files.values())

    def to_json(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "digest": self.digest,
            "files": {path: [file.sha256, file.bytes] for path, file in sorted(self.files.items())},
        }

    @classmethod
    def from_json(cls, value: Any) -> Self | None:
        """None for what is no manifest of this format."""
        try:
            if value["format"] != _FORMAT:
                return None
            return cls({str(path): CodeFile(str(sha), int(size)) for path, (sha, size) in value["files"].items()})
        except (KeyError, TypeError, ValueError, AttributeError):
            return None


def take_manifest(code: Path) -> CodeManifest:
    """Describe a fresh copy, which holds nothing but files, directories and links. Raises OSError."""
    return CodeManifest(dict(_files(code)))


def _files(code: Path) -> Iterator[tuple[str, CodeFile]]:
    for directory, directories, names in os.walk(code):
        for name in [*names, *(each for each in directories if (Path(directory) / each).is_symlink())]:
            path = Path(directory) / name
            yield str(path.relative_to(code)), describe(path)


def describe(path: Path) -> CodeFile:
    """Hash and size of a file, or of the text of a link. Raises OSError."""
    if path.is_symlink():
        return describe_link(str(path.readlink()))
    with path.open("rb") as file:
        return describe_file(file)


def describe_link(text: str) -> CodeFile:
    data = os.fsencode(text)
    return CodeFile(hashlib.sha256(data).hexdigest(), len(data))


def describe_file(file: BinaryIO) -> CodeFile:
    digest = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # an open file has what it needs
    return CodeFile(digest, os.fstat(file.fileno()).st_size)


_MAX_TEXT = 256 * 1024  # bytes of a file whose lines are compared
_MAX_LINES = 4000
_MAX_DIFFS = 50  # files whose lines are compared


@dataclass(frozen=True, slots=True)
class FileDifference(Described):
    """A file that differs between the code of two jobs."""

    path: str
    """Path of the file, relative to the code."""
    change: Literal["added", "removed", "changed"]
    """What the other job did to the file."""
    diff: str | None
    """Changed lines in unified format; null where they cannot be shown: no text, too long, or not as submitted."""


def read_manifest(run_dir: RunDir) -> CodeManifest | None:
    """None for a job without code of its own, and where the manifest is lost."""
    return CodeManifest.from_json(read_json(run_dir.code_manifest, root=run_dir.root))


def differences(old: RunDir, new: RunDir) -> list[FileDifference]:
    """What changed from ``old`` to ``new``, by path; nothing where the code of one of them is not on record."""
    before, after = read_manifest(old), read_manifest(new)
    if before is None or after is None:
        return []
    paths = sorted(before.files.keys() | after.files.keys())
    changed = [path for path in paths if before.files.get(path) != after.files.get(path)]
    return [
        _difference(path, (old, before.files.get(path)), (new, after.files.get(path)), with_lines=number < _MAX_DIFFS)
        for number, path in enumerate(changed)
    ]


_Version = tuple[RunDir, CodeFile | None]


def _difference(path: str, old: _Version, new: _Version, *, with_lines: bool) -> FileDifference:
    if old[1] is None:
        return FileDifference(path, "added", None)
    if new[1] is None:
        return FileDifference(path, "removed", None)
    before, after = (_lines(path, old), _lines(path, new)) if with_lines else (None, None)
    if before is None or after is None:
        return FileDifference(path, "changed", None)
    return FileDifference(path, "changed", "\n".join(difflib.unified_diff(before, after, lineterm="", n=2)))


def _lines(path: str, version: _Version) -> list[str] | None:
    """Lines of a text as it was submitted; None where the ranks, which work in the copy, have changed it."""
    run_dir, file = version
    data = read_small(run_dir.root, run_dir.code / path, _MAX_TEXT)
    if data is None or file is None or hashlib.sha256(data).hexdigest() != file.sha256 or b"\0" in data:
        return None
    lines = data.decode(errors="replace").splitlines()
    return lines if len(lines) <= _MAX_LINES else None
