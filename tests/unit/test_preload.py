import ast
import sys

import numpy  # noqa: F401  # no process can load it twice: it must be there before the modules are put back
import pytest

from rekindle.contract.job import JobSpec, TargetKind
from rekindle.keeper.torchrun import preload as preloading
from rekindle.keeper.torchrun.preload import preload, safe_imports


def named(source):
    return safe_imports(ast.parse(source))


def test_only_what_is_known_to_be_harmless_is_named():
    source = """
import torch, os
import numpy as np
import torch.nn.functional as F
from torchvision.models import resnet18
from mine import torch as other
from . import torchmetrics
import tensorflow
"""
    assert named(source) == ["torch", "numpy", "torch.nn.functional", "torchvision.models"]


def test_imports_inside_functions_and_conditions_count():
    assert named("def f():\n  if x:\n    import sklearn.datasets\n") == ["sklearn.datasets"]


def test_a_name_that_only_begins_like_a_harmless_one_does_not_count():
    assert named("import torch_of_mine, numpy_evil.x") == []


def test_a_script_that_uses_run_gets_its_parts():
    assert named("import rekindle") == ["rekindle", "rekindle.training.run"]


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


@pytest.mark.parametrize("source", [b"import (", b"\x00", b"\xff\xfe\x00", b"(" * 100_000, b"-" * 100_000 + b"1"])
def test_a_script_that_cannot_be_read_is_preloaded_nothing_for(tmp_path, job, source):
    assert preload(job(source), tmp_path) == []


def test_a_script_that_is_not_there_is_preloaded_nothing_for(tmp_path, job):
    spec = job(b"")
    (tmp_path / "train.py").unlink()
    assert preload(spec, tmp_path) == []


def test_what_cannot_be_imported_is_told_and_does_no_harm(tmp_path, job):
    failed = preload(job(b"import numpy.no_such_thing\n"), tmp_path)
    assert len(failed) == 1
    assert failed[0].startswith("numpy.no_such_thing: ")


def test_a_module_is_found_without_importing_its_package(tmp_path, job):
    spec = job(b"import numpy.no_such_thing\n", kind=TargetKind.MODULE, target="pkg.train")
    (tmp_path / "pkg" / "__init__.py").write_text("raise SystemExit('imported')")
    assert [each.partition(":")[0] for each in preload(spec, tmp_path)] == ["numpy.no_such_thing"]
