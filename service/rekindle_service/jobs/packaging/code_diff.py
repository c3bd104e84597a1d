"""How the code of two jobs differs, as it was submitted."""

import difflib
import hashlib
from dataclasses import dataclass
from typing import Literal

from rekindle.contract.files import read_json
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import read_small
from rekindle_service.jobs.packaging.manifest import CodeFile, CodeManifest

_MAX_TEXT = 256 * 1024  # bytes of a file whose lines are compared
_MAX_LINES = 4000
_MAX_DIFFS = 50  # files whose lines are compared


@dataclass(frozen=True, slots=True)
class FileDifference:
    """``diff`` has the lines that differ, None where they cannot be shown: no text, too long, or not as submitted."""

    path: str
    change: Literal["added", "removed", "changed"]
    diff: str | None


def read_manifest(run_dir: RunDir) -> CodeManifest | None:
    """None for a job without code of its own, and where the manifest is lost."""
    return CodeManifest.from_json(read_json(run_dir.code_manifest, root=run_dir.root))


def differences(old: RunDir, new: RunDir) -> list[FileDifference] | None:
    """What changed from ``old`` to ``new``, by path; None where the code of one of them is not on record."""
    before, after = read_manifest(old), read_manifest(new)
    if before is None or after is None:
        return None
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
    """Of a text as it was submitted: the copy is where the ranks work, and they may have changed it."""
    run_dir, file = version
    data = read_small(run_dir.root, run_dir.code / path, _MAX_TEXT)
    if data is None or file is None or hashlib.sha256(data).hexdigest() != file.sha256 or b"\0" in data:
        return None
    lines = data.decode(errors="replace").splitlines()
    return lines if len(lines) <= _MAX_LINES else None
