"""Packages that an interpreter imports from directories of their own (`pip install -e`), past the copy of the code."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.job import JobSpec, TargetKind
from rekindle_service.jobs.packaging.code_copy import CodeTree, Inventory

_MAX_FILES = 2000  # of Python, in which imports are looked for
_MAX_BYTES = 1 << 20  # of one such file
_OWN = {"rekindle", "rekindle_service"}  # the server gives every job its own
_SOURCE_DIRECTORIES = (".", "src", "lib", "python")


@dataclass(frozen=True, slots=True)
class EditableModule:
    """``path`` is the package's directory or the module's file, outside of any environment."""

    name: str
    path: Path


def bypass_warnings(
    spec: JobSpec, code: Path, modules: Sequence[EditableModule], sources: Iterable[bytes] | None = None
) -> list[str]:
    """A sentence for each module that the code imports, but not from ``code``, the copy or what will be copied.

    ``sources``: its Python files; by default all that are in ``code``.
    """
    sources = _python_sources(code) if sources is None else sources
    imported = _imported_names(sources, {module.name for module in modules} - _OWN)
    before = _directories_before(spec, code)
    return [
        _warning(module, code)
        for module in modules
        if module.name in imported and not any(_has(directory, module.name) for directory in before)
    ]


def read_python(tree: CodeTree, found: Inventory) -> Iterator[bytes]:
    """The Python files that are to be copied. All files are opened, so that this raises what ``copy_code`` raises."""
    for path, status in found.files.items():
        with tree.open(path, status) as file:
            if path.suffix == ".py":
                yield file.read(_MAX_BYTES)


def _directories_before(spec: JobSpec, code: Path) -> list[Path]:
    """What comes before the environment's packages on ``sys.path``."""
    first = (code / spec.target).parent if spec.kind is TargetKind.SCRIPT else code
    path = spec.env.get("PYTHONPATH", "")
    return [first, *(code / each for each in path.split(os.pathsep) if each)]


def _has(directory: Path, name: str) -> bool:
    return (directory / name).is_dir() or (directory / f"{name}.py").is_file()


def _imported_names(sources: Iterable[bytes], names: set[str]) -> set[str]:
    pattern = re.compile(rb"^[ \t]*(?:from|import)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)
    wanted = {name.encode() for name in names}
    found: set[bytes] = set()
    for source in sources:
        found |= wanted.intersection(pattern.findall(source))
    return {name.decode() for name in found}


def _python_sources(code: Path) -> Iterator[bytes]:
    count = 0
    for directory, _, names in os.walk(code):
        for name in names:
            path = Path(directory, name)
            if name.endswith(".py") and path.is_file() and not path.is_symlink():
                yield path.read_bytes()[:_MAX_BYTES]
                count += 1
                if count == _MAX_FILES:
                    return


def _warning(module: EditableModule, code: Path) -> str:
    inside = next((each for each in _SOURCE_DIRECTORIES if _has(code / each, module.name)), None)
    installed = f"{module.name} is installed in editable mode, so the job imports it from {module.path}"
    if inside is None:
        return f"{installed}: later edits there affect the job. To prevent it, install {module.name} without -e"
    fix = f"--env PYTHONPATH={inside}"
    return f"{installed}, not from the copied code: later edits affect the job. To import the copy, submit with {fix}"
