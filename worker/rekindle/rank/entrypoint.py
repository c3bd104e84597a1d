"""The user's script, module or recipe, run as ``__main__`` as torchrun would have run it in a fresh interpreter.

Not by ``runpy``, which restores the old ``__main__`` at the end: exit functions and threads would not find there what
they pickle, and multiprocessing would mistake the wrapper for the script.
"""

import ast
import importlib.util
import inspect
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import TargetKind

_LOADED_BEFORE_ANY_SCRIPT = {"__main__", "encodings"}
_LOCAL_RANK = ("--local_rank", "--local-rank")
"""The option of scripts written for ``torch.distributed.launch``, which passed it to every process."""


class ScriptMissingError(Exception):
    """The script itself is not in the job's code directory."""


def run_target(spec: JobSpec, code: Path) -> None:
    """Run the script, module or recipe. Raises whatever ends it, SystemExit too."""
    os.environ.pop("PYTHONSAFEPATH", None)
    os.chdir(code)
    if spec.kind is TargetKind.SCRIPT:
        _run_script(code / spec.target, spec.args)
    else:
        module = spec.target if spec.kind is TargetKind.MODULE else f"rekindle.recipes.{spec.target}"
        _run_module(module, code, spec.args)


def _run_script(script: Path, arguments: Sequence[str]) -> None:
    try:
        source = script.read_bytes()
    except FileNotFoundError:
        raise ScriptMissingError(f"{script} does not exist any more: submit the job again with its code") from None
    _put_first_on_path(script.parent)
    program = compile(source, str(script), "exec", dont_inherit=True)
    arguments = [*local_rank_arguments(source, arguments, os.environ), *arguments]
    loader = SourceFileLoader("__main__", str(script))
    _run(program, [str(script), *arguments], __file__=str(script), __loader__=loader, __package__=None, __cached__=None)


def _run_module(name: str, code: Path, arguments: Sequence[str]) -> None:
    _put_first_on_path(code)
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
    """Find the module ``name``, or the ``__main__`` of a package."""
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named {name}", name=name)
    return spec


def _put_first_on_path(directory: Path) -> None:
    """Put ``directory`` first on the path, and drop loaded modules that have the same name as a module in it.

    A script next to a ``profile.py`` means that one, though torch has loaded the standard library's before.
    """
    sys.path.insert(0, str(directory))
    packages = {path.parent.name for path in directory.glob("*/__init__.py")}
    files = {inspect.getmodulename(path.name) for path in directory.iterdir() if path.is_file()}
    for name in (packages | files) - {None, *_LOADED_BEFORE_ANY_SCRIPT}:
        spec = getattr(sys.modules.get(str(name)), "__spec__", None)
        if spec is not None and spec.origin not in ("built-in", "frozen"):
            for loaded in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
                del sys.modules[loaded]


def _run(program: CodeType, argv: list[str], **attributes: object) -> None:
    main = ModuleType("__main__")
    main.__dict__.update(__builtins__=sys.modules["builtins"], **attributes)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = main  # the second is multiprocessing's name for it
    sys.argv = argv
    exec(program, main.__dict__)  # noqa: S102  # running the user's code is what a rank is for


def local_rank_arguments(source: bytes, arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Option with the rank's number, for a script that defines it and reads LOCAL_RANK nowhere; else nothing.

    Nothing either where ``arguments`` have it already, or where there is one rank: a script without a number trains
    alone, as with plain ``python``.
    """
    if int(environment.get("WORLD_SIZE", "1")) < 2 or any(each.partition("=")[0] in _LOCAL_RANK for each in arguments):
        return []
    if b"local" not in source or b"LOCAL_RANK" in source or b"add_subparsers" in source:
        return []
    with suppress(SyntaxError, ValueError, RecursionError, MemoryError):
        return [f"{name}={environment['LOCAL_RANK']}" for name in _defined(ast.parse(source))][:1]
    return []


def _defined(tree: ast.AST) -> Iterator[str]:
    """The first name by which each ``add_argument`` or ``option`` defines the option."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", None) in ("add_argument", "option"):
            names = [each.value for each in node.args if isinstance(each, ast.Constant) and each.value in _LOCAL_RANK]
            yield from map(str, names[:1])
