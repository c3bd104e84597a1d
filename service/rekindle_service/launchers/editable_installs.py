"""Asks an interpreter which packages it imports from directories outside of its environment (`pip install -e`)."""

import subprocess
import sys
from pathlib import Path

from rekindle_service.jobs.packaging.editable_installs import EditableModule
from rekindle_service.launchers.interpreter import ask

_PROBE = """
import json, os, site, sys, sysconfig
standard = {os.path.realpath(each) for each in [
    *sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages(),
    os.path.join(sysconfig.get_paths()["stdlib"], "lib-dynload")]}
found = {}
for root in sys.path:
    if root and os.path.isdir(root) and os.path.realpath(root) not in standard:
        names = os.listdir(root)
        if any(name.endswith(".dist-info") for name in names):
            continue
        for name in names:
            path = os.path.join(root, name)
            if name.endswith(".py") or os.path.isfile(os.path.join(path, "__init__.py")):
                found.setdefault(name.removesuffix(".py"), path)
for name, module in list(sys.modules.items()):
    if name.startswith("__editable__"):
        found.update(getattr(module, "MAPPING", {}))
print(json.dumps(found))
"""


class EditableModules:
    """``editable_modules``, once per interpreter until a package is installed there."""

    def __init__(self, *, isolated: bool = False) -> None:
        """``isolated``: as of ``InterpreterCheck``."""
        self._isolated = isolated
        self._known: dict[tuple[str, tuple[int, ...]], list[EditableModule]] = {}

    def __call__(self, python: str) -> list[EditableModule]:
        if self._isolated and python != sys.executable:
            return []
        packages = Path(python).parent.parent.glob("lib/python*/site-packages")
        key = (python, tuple(each.stat().st_mtime_ns for each in packages))
        if key not in self._known:
            self._known[key] = editable_modules(python)
        return self._known[key]


def editable_modules(python: str) -> list[EditableModule]:
    """Empty where the interpreter does not answer: whether it can run a job is checked elsewhere."""
    try:
        found = ask(python, _PROBE, "-P")
        return [EditableModule(str(name), Path(path)) for name, path in found.items()]
    except (OSError, subprocess.SubprocessError, ValueError, TypeError, AttributeError):
        return []
