"""Placeholders in a job's arguments: checked at submit, filled in by the keeper when an attempt starts.

``{snapshots}`` and ``{run}`` are directories, ``{job}`` and ``{attempt}`` id and number, ``{checkpoint}`` is the latest
complete checkpoint that the script has written, ``{latest:GLOB}`` the latest file or directory that matches,
``{exists:GLOB}`` a condition, and ``{{word}}`` the text ``{word}``. Other braces, such as those of JSON, and ``${…}``
of other tools are text.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import iglob
from pathlib import Path

from rekindle.contract.files import read_json, write_json
from rekindle.contract.job import JobSpec
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.script_files import own_checkpoints

KNOWN = "{snapshots}, {run}, {job}, {attempt}, {checkpoint}, {latest:GLOB} and, in on_restart, {exists:GLOB}"

_NAMES = frozenset({"snapshots", "run", "job", "attempt", "checkpoint"})
_BODY = r"(?:latest|exists):[^{}]+|[A-Za-z_][A-Za-z0-9_]*"
_PLACEHOLDER = re.compile(rf"(?<!\$)(?:\{{\{{(?P<literal>{_BODY})\}}\}}|\{{(?P<name>{_BODY})\}})")
_CONDITION = re.compile(r"\{exists:([^{}]+)\}")
_MOVED_ASIDE = re.compile(r"\.torn-\d+$")


class NoMatchError(Exception):
    """No file matches the pattern of a ``{latest:…}``, or there is no checkpoint."""


def unknown_placeholders(arguments: Iterable[str], *, conditions: bool) -> list[str]:
    """Placeholders that could not be filled in; ``conditions``: ``{exists:…}`` may be an argument of its own."""
    return [
        f"{{{name}}}"
        for argument in arguments
        if not (conditions and _CONDITION.fullmatch(argument))
        for match in _PLACEHOLDER.finditer(argument)
        if (name := match["name"]) is not None and name not in _NAMES and not name.startswith("latest:")
    ]


def attempt_arguments(spec: JobSpec, run_dir: RunDir, attempt: int) -> list[str]:
    """Arguments of the script in this attempt.

    ``on_restart`` is appended where an earlier attempt may have saved something, that is from the second one on and in
    a job that continues another; none of it where a condition in it is not met.
    """
    scope = _Scope(run_dir, attempt)
    arguments = scope.fill_in(spec.args)
    if attempt > 1 or spec.continue_from is not None:
        patterns = [match[1] for each in spec.on_restart if (match := _CONDITION.fullmatch(each))]
        if all(scope.latest(pattern) for pattern in patterns):
            arguments += scope.fill_in(each for each in spec.on_restart if not _CONDITION.fullmatch(each))
    return arguments


def write_arguments(spec: JobSpec, run_dir: RunDir, attempt: int) -> None:
    """Write the script's arguments once, before the ranks start, so that all get the same. Raises OSError."""
    directory = run_dir.attempt(attempt)
    directory.root.mkdir(parents=True, exist_ok=True)
    write_json(directory.arguments, attempt_arguments(spec, run_dir, attempt), durable=False)


def read_arguments(run_dir: RunDir, attempt: int) -> list[str] | None:
    """The script's arguments in this attempt; None where no list of them is stored."""
    value = read_json(run_dir.attempt(attempt).arguments, root=run_dir.root)
    return value if isinstance(value, list) and all(isinstance(each, str) for each in value) else None


@dataclass(frozen=True, slots=True)
class _Scope:
    """What placeholders mean in one attempt."""

    run_dir: RunDir
    attempt: int

    def fill_in(self, arguments: Iterable[str]) -> list[str]:
        """Replace placeholders; omit an argument whose file does not exist, and the option whose value it is."""
        filled: list[str] = []
        for argument in arguments:
            try:
                filled.append(_PLACEHOLDER.sub(self._value, argument))
            except NoMatchError:
                if filled and _PLACEHOLDER.fullmatch(argument) and _takes_a_value(filled[-1]):
                    filled.pop()
        return filled

    def latest(self, pattern: str) -> Path | None:
        """The latest file or directory that matches and has content, in the working directory or that of snapshots."""
        found = dict(_matches(pattern, (self.run_dir.code, self.run_dir.snapshots)))
        return max(found, key=lambda path: (found[path], len(str(path)), str(path)), default=None)

    def _value(self, match: re.Match[str]) -> str:
        if (literal := match["literal"]) is not None:
            return f"{{{literal}}}"
        kind, _, pattern = match["name"].partition(":")
        match kind:
            case "latest" if pattern:
                latest = self.latest(pattern)
                if latest is None:
                    raise NoMatchError(pattern)
                return str(latest)
            case "checkpoint":
                return self._checkpoint()
            case "snapshots":
                return str(self.run_dir.snapshots)
            case "run":
                return str(self.run_dir.root)
            case "job":
                return self.run_dir.job_id
            case "attempt":
                return str(self.attempt)
            case _:  # refused at submit
                return match[0]

    def _checkpoint(self) -> str:
        own = own_checkpoints(self.run_dir)
        if not own:
            raise NoMatchError("checkpoint")
        return own[0].path


def _takes_a_value(argument: str) -> bool:
    """Whether the next argument is its value: ``--resume`` and ``-r``, not ``--lr=1``, ``--`` or ``-1``."""
    return re.fullmatch(r"--?[A-Za-z][^=]*", argument) is not None


def _matches(pattern: str, directories: Sequence[Path]) -> Iterator[tuple[Path, int]]:
    """Each match with its time of modification in nanoseconds."""
    for directory in directories:
        for name in iglob(str(Path(pattern).expanduser()), root_dir=directory, recursive=True):  # noqa: PTH207  # absolute, too
            path = directory / name  # ``name`` itself where it is absolute
            with suppress(OSError):
                if not _MOVED_ASIDE.search(path.name) and _has_content(path):
                    yield path, path.stat().st_mtime_ns


def _has_content(path: Path) -> bool:
    if path.is_dir():
        return next(path.iterdir(), None) is not None
    return path.stat().st_size > 0
