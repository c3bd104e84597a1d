"""The source lines around a frame, from the copy of the code that a job runs with."""

import hashlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rekindle.contract.field_texts import Described
from rekindle.contract.rank_traces import Frame
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import open_beneath
from rekindle_service.jobs.packaging.code_manifest import CodeFile, read_manifest
from rekindle_service.jobs.tracebacks import RaisedFrame, relative_to_code
from rekindle_service.sanitize import sanitize_line

_AROUND = 3  # lines before and after that of a frame
_MAX_FILE = 1 << 20  # bytes of a file whose lines are shown
_MAX_LINE = 300  # characters
_MAX_NAME = 500  # characters
_LINE_END = re.compile("\r\n|\r|\n")  # what Python counts as one, unlike str.splitlines


class SourceState(StrEnum):
    """Whether source lines are those that ran."""

    CURRENT = "current"
    CHANGED = "changed"  # the file has changed since the job was submitted, or since it failed
    UNREADABLE = "unreadable"  # it is no file of the job's code, or not readable as text: at most the line recorded


@dataclass(frozen=True, slots=True)
class SourceLine(Described):
    """One line of code."""

    line: int
    """Number of the line, from 1."""
    text: str
    """Its text, at most 300 characters."""


@dataclass(frozen=True, slots=True)
class StoryFrame(Described):
    """One level of a stack."""

    file: str
    """Path of the file, relative to the job's code where it is in it."""
    line: int
    """Number of the line, from 1."""
    function: str
    """Name of the function."""
    is_user: bool
    """Whether the file is in the job's code."""
    source: list[SourceLine]
    """The line with three lines before and after it; empty where they are not available."""
    source_state: SourceState
    """Whether these are the lines that ran: `current`, `changed` or `unreadable`."""


@dataclass(slots=True)
class _File:
    lines: list[str]
    sha256: str
    modified_at: float  # seconds since the epoch


@dataclass(slots=True)
class SourceReader:
    """Reads each file of a job's code once; ``failed_at`` (seconds since the epoch) is when its lines ran last."""

    run_dir: RunDir
    failed_at: float | None
    _files: dict[str, _File | None] = field(default_factory=dict)
    _manifest: dict[str, CodeFile] | None = None

    def frames(self, frames: Sequence[Frame]) -> list[StoryFrame]:
        """``frames`` with their source lines."""
        return [self._frame(frame) for frame in frames]

    def _frame(self, frame: Frame) -> StoryFrame:
        relative = relative_to_code(frame.file, self.run_dir.code)
        quoted = frame.quoted if isinstance(frame, RaisedFrame) else ""
        file = None if relative is None else self._file(relative)
        if file is None or relative is None or not 0 < frame.line <= len(file.lines):
            source = [SourceLine(frame.line, _shown(quoted))] if quoted else []
            state = SourceState.UNREADABLE if file is None else SourceState.CHANGED
        else:
            source = _around(file.lines, frame.line)
            state = self._state(relative, file, file.lines[frame.line - 1], quoted)
        name = sanitize_line(relative or frame.file)[-_MAX_NAME:]
        return StoryFrame(
            name, frame.line, sanitize_line(frame.function)[:_MAX_NAME], relative is not None, source, state
        )

    def _file(self, relative: str) -> _File | None:
        if relative not in self._files:
            self._files[relative] = _read(self.run_dir.root, self.run_dir.code / relative)
        return self._files[relative]

    def _state(self, relative: str, file: _File, line: str, quoted: str) -> SourceState:
        submitted = self._submitted().get(relative)
        if submitted is not None:
            changed = submitted.sha256 != file.sha256
        else:
            changed = self.failed_at is not None and file.modified_at > self.failed_at
        if quoted and quoted.strip() != line.strip() and "\ufffd" not in quoted:
            changed = True
        return SourceState.CHANGED if changed else SourceState.CURRENT

    def _submitted(self) -> dict[str, CodeFile]:
        if self._manifest is None:
            manifest = read_manifest(self.run_dir)
            self._manifest = {} if manifest is None else manifest.files
        return self._manifest


def _read(root: Path, path: Path) -> _File | None:
    """None for what is absent, too large or no text."""
    if (opened := open_beneath(root, path)) is None:
        return None
    with opened as file:
        modified_at = os.fstat(file.fileno()).st_mtime
        data = file.read(_MAX_FILE + 1)
    if len(data) > _MAX_FILE or b"\0" in data:
        return None
    return _File(_LINE_END.split(_decode(data)), hashlib.sha256(data).hexdigest(), modified_at)


def _decode(data: bytes) -> str:
    """Decode UTF-8; a source in another encoding is read as Latin-1, which every byte is valid in."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _around(lines: list[str], line: int) -> list[SourceLine]:
    first = max(line - _AROUND, 1)
    chosen = lines[first - 1 : line + _AROUND]
    numbered = [SourceLine(number, _shown(text)) for number, text in enumerate(chosen, first)]
    shown = [each.line for each in numbered if each.text or each.line == line]
    return [each for each in numbered if shown[0] <= each.line <= shown[-1]]


def _shown(text: str) -> str:
    return sanitize_line(text.expandtabs(4)).rstrip()[:_MAX_LINE]
