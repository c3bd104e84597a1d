"""The user's script, module or recipe, run as ``__main__`` as torchrun would have run it.

Not by ``runpy``, which puts the old ``__main__`` back at the end: exit functions and threads would look there in vain
for what they pickle, and multiprocessing would take the wrapper for the script.
"""

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from rekindle.contract.job import JobSpec, TargetKind
from rekindle.rank.fresh_start import forget_shadowed


def run_target(spec: JobSpec, code: Path) -> None:
    """Whatever ends the script, SystemExit too, comes out of here."""
    os.environ.pop("PYTHONSAFEPATH", None)
    os.chdir(code)
    if spec.kind is TargetKind.SCRIPT:
        _run_script(code / spec.target, spec.args)
    else:
        module = spec.target if spec.kind is TargetKind.MODULE else f"rekindle.recipes.{spec.target}"
        _run_module(module, code, spec.args)


def _run_script(script: Path, arguments: Sequence[str]) -> None:
    _look_first_in(script.parent)
    program = compile(script.read_bytes(), str(script), "exec", dont_inherit=True)
    loader = SourceFileLoader("__main__", str(script))
    _run(program, [str(script), *arguments], __file__=str(script), __loader__=loader, __package__=None, __cached__=None)


def _run_module(name: str, code: Path, arguments: Sequence[str]) -> None:
    _look_first_in(code)
    sys.argv = ["-m", *arguments]  # what the packages above the module see while they are imported
    spec = _find(name)
    loader: Any = spec.loader
    program = loader.get_code(spec.name)
    if program is None:
        raise ImportError(f"{spec.name} has no code to run")
    file = str(spec.origin)
    _run(
        program, [file, *arguments], __file__=file, __loader__=loader, __package__=spec.parent, __cached__=spec.cached,
        __spec__=spec,
    )  # fmt: skip


def _find(name: str) -> ModuleSpec:
    """The module ``name``; of a package its ``__main__``."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name}", name=name)
    return spec


def _look_first_in(folder: Path) -> None:
    sys.path.insert(0, str(folder))
    forget_shadowed(folder)


def _run(program: CodeType, argv: list[str], **attributes: object) -> None:
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], **attributes)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main  # the second is multiprocessing's name for it
    sys.argv = argv
    exec(program, main.__dict__)  # noqa: S102  # running the user's code is what a rank is for
