"""Packages in editable mode that a job would import past the copy of its code."""

import subprocess
import sys
from pathlib import Path

import pytest

from rekindle.contract.job import JobSpec
from rekindle.contract.job_options import TargetKind
from rekindle_service.launch.local.interpreter import EditableModule, bypass_warnings, editable_modules


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "copy" / "src" / "pkg").mkdir(parents=True)
    (tmp_path / "copy" / "src" / "pkg" / "__init__.py").touch()
    (tmp_path / "copy" / "train.py").write_text("import pkg.data\nfrom lib import x\nimport rekindle\n")
    return tmp_path / "copy"


MODULES = [EditableModule("pkg", Path("/me/src/pkg")), EditableModule("lib", Path("/lib/lib.py"))]
OTHERS = [EditableModule("other", Path("/me/other")), EditableModule("rekindle", Path("/me/rekindle"))]


def warnings(copy: Path, target: str = "train.py", **env: str) -> list[str]:
    spec = JobSpec("n", TargetKind.SCRIPT, target, "/p", env=env)
    return bypass_warnings(spec, copy, [*MODULES, *OTHERS])


def test_a_package_that_is_imported_past_the_copy_is_named_with_the_option_that_helps(copy: Path) -> None:
    inside, outside = warnings(copy)
    assert "pkg is installed in editable mode, so the job imports it from /me/src/pkg, not from the copied" in inside
    assert "--env PYTHONPATH=src" in inside
    assert "lib is installed in editable mode, so the job imports it from /lib/lib.py" in outside


def test_what_the_copy_provides_first_is_no_reason_for_a_warning(copy: Path) -> None:
    assert len(warnings(copy, PYTHONPATH="src")) == 1
    (copy / "pkg").mkdir()
    (copy / "lib.py").touch()
    assert warnings(copy) == []
    (copy / "scripts").mkdir()
    assert len(warnings(copy, target="scripts/train.py")) == 2, "the directory of the script is the first on the path"


def test_editable_installs_of_an_interpreter_are_found_unless_it_does_not_answer(tmp_path: Path) -> None:
    venv, src = tmp_path / "venv", tmp_path / "src"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    packages = next(venv.glob("lib/python3*/site-packages"))
    (src / "pkg").mkdir(parents=True)
    (src / "pkg" / "__init__.py").touch()
    (src / "single.py").touch()
    expected = [("pkg", str(src / "pkg")), ("single", str(src / "single.py"))]
    finder = f"MAPPING = {dict(expected)!r}\n"
    for link, module in ((f"{src}\n", ""), ("import __editable___pkg_finder\n", finder)):
        (packages / "__editable__.pkg-1.pth").write_text(link)
        (packages / "__editable___pkg_finder.py").write_text(module)
        found = editable_modules(str(venv / "bin" / "python"))
        assert sorted((each.name, str(each.path)) for each in found) == expected, link
    assert editable_modules("/bin/false") == editable_modules("/nowhere/python") == []
