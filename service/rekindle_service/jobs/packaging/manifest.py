"""Which code a job was submitted with, file by file: the copy itself may change, since it is where the ranks work."""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Self

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
    """Of a fresh copy, which holds nothing but files, directories and links. Raises OSError."""
    return CodeManifest(dict(_files(code)))


def _files(code: Path) -> Iterator[tuple[str, CodeFile]]:
    for directory, directories, names in os.walk(code):
        for name in [*names, *(each for each in directories if (Path(directory) / each).is_symlink())]:
            path = Path(directory) / name
            yield str(path.relative_to(code)), describe(path)


def describe(path: Path) -> CodeFile:
    """Of a file, or of the text of a link. Raises OSError."""
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
