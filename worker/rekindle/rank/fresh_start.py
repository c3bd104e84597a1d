"""Makes a rank look to its script like a fresh interpreter, whoever forked it and whatever was imported before."""

import inspect
import multiprocessing
import sys
from multiprocessing import process
from pathlib import Path

_MAIN = multiprocessing.current_process()  # the warm agent has imported this module before it forks
_LOADED_BEFORE_ANY_SCRIPT = {"__main__", "encodings"}


def forget_being_forked() -> None:
    """Undo what multiprocessing has noted in this process, by which torchrun forks ranks from a warm agent.

    Else a script could not choose its start method, and libraries that ask whether this is the main process would be
    told that it is a worker. numpy's generator is seeded anew, or every rank of every attempt would draw the same.
    """
    multiprocessing.set_start_method(None, force=True)
    process._current_process = _MAIN  # type: ignore[attr-defined]  # there is no public way
    process._parent_process = None  # type: ignore[attr-defined]  # as above
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        numpy_random.seed()


def forget_shadowed(folder: Path) -> None:
    """Forget loaded modules that a module in ``folder``, the first of ``sys.path``, goes by the name of.

    A script with a ``profile.py`` beside it means that one, though torch has loaded the standard library's before.
    """
    for name in _modules_in(folder) - _LOADED_BEFORE_ANY_SCRIPT:
        spec = getattr(sys.modules.get(name), "__spec__", None)
        if spec is not None and spec.origin not in ("built-in", "frozen"):
            for loaded in [each for each in sys.modules if each == name or each.startswith(f"{name}.")]:
                del sys.modules[loaded]


def _modules_in(folder: Path) -> set[str]:
    """Names under which the files and packages right in ``folder`` can be imported."""
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    files = {inspect.getmodulename(path.name) for path in folder.iterdir() if path.is_file()}
    return packages | {name for name in files if name is not None}
