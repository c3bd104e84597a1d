import ast
import subprocess
import sys

import numpy  # noqa: F401  # no process can load it twice: it must be there before the modules are put back
import pytest

from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import TargetKind
from rekindle.keeper.torchrun import preload as preloading
from rekindle.keeper.torchrun.preload import preload, safe_imports

IMPORTS = """
import torch, os
import numpy as np
import torch.nn.functional as F
from torchvision.models import resnet18
from mine import torch as other
from . import torchmetrics
import tensorflow
"""


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (IMPORTS, ["torch", "numpy", "torch.nn.functional", "torchvision.models"]),
        ("def f():\n  if x:\n    import sklearn.datasets\n", ["sklearn.datasets"]),
        ("import torch_of_mine, numpy_evil.x", []),
        ("import rekindle", ["rekindle", "rekindle.training.run"]),
    ],
    ids=["known ones", "inside a function and a condition", "names that begin like known ones", "a Run and its parts"],
)
def test_only_imports_known_to_be_harmless_are_named(source, expected):
    assert safe_imports(ast.parse(source)) == expected


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Preloads nothing but what the script names, into a set of modules and a path that are put back."""
    monkeypatch.setattr(preloading, "_ALWAYS", ())
    monkeypatch.setattr(sys, "modules", dict(sys.modules))

    def make(source, *, kind=TargetKind.SCRIPT, target="train.py"):
        path = tmp_path / "train.py" if kind is TargetKind.SCRIPT else tmp_path / "pkg" / "train.py"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(source)
        return JobSpec("n", kind, target, sys.executable)

    return make


@pytest.mark.parametrize("source", [b"import (", b"\x00", b"\xff\xfe\x00", b"(" * 100_000, b"-" * 100_000 + b"1", None])
def test_nothing_is_preloaded_for_a_script_that_is_absent_or_cannot_be_read(tmp_path, job, source):
    spec = job(source or b"")
    if source is None:
        (tmp_path / "train.py").unlink()
    assert preload(spec, tmp_path) == []


def test_an_import_that_fails_is_reported_and_does_no_harm(tmp_path, job):
    (failed,) = preload(job(b"import numpy.no_such_thing\n"), tmp_path)
    assert failed.startswith("numpy.no_such_thing: ")


def test_a_fork_runs_its_own_finalizers_and_none_of_what_was_imported_before_it(tmp_path):
    (tmp_path / "finalizing.py").write_text("import sys, weakref\nweakref.finalize(sys, print, 'imported')\n")
    program = f"""
import atexit, os, sys, weakref
sys.path[:0] = [{str(tmp_path)!r}]
from rekindle.keeper.torchrun.preload import import_all
weakref.finalize(sys, print, "there before")
assert import_all(["finalizing"]) == []
if os.fork() == 0:
    weakref.finalize(sys, print, "own")
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(0)
os.wait()
os._exit(0)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == ["own", "there before"]


def test_a_module_is_found_without_importing_its_package(tmp_path, job):
    spec = job(b"import numpy.no_such_thing\n", kind=TargetKind.MODULE, target="pkg.train")
    (tmp_path / "pkg" / "__init__.py").write_text("raise SystemExit('imported')")
    assert [each.partition(":")[0] for each in preload(spec, tmp_path)] == ["numpy.no_such_thing"]
