"""Jobs under interpreters in which nothing of rekindle is installed: of the shell that submits, or of a setting."""

import json
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest

from cli_process import rekindle
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from rest_api import RestApi

STANDARD, SITE = (Path(sysconfig.get_paths()[name]) for name in ("stdlib", "purelib"))
SCRIPT = """
import json, os, pathlib, sys
import torch.distributed as dist
import rekindle
from rekindle import Run
dist.init_process_group("gloo")
found = {"prefix": sys.prefix, "rekindle": rekindle.__file__, "ranks": dist.get_world_size(), "run": Run.__module__}
if dist.get_rank() == 0:
    pathlib.Path(os.environ["FOUND"]).write_text(json.dumps(found))
dist.destroy_process_group()
"""


def packages(prefix: Path) -> Path:
    return prefix / "lib" / STANDARD.name / "site-packages"


def bare(prefix: Path) -> Path:
    """Make a virtual environment without any package; returns its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True)
    return prefix / "bin" / "python"


def virtual(prefix: Path) -> Path:
    """Make a virtual environment with nothing but the torch of the tests."""
    bare(prefix)
    (packages(prefix) / "torch_of_the_tests.pth").write_text(f"{SITE}\n")
    return prefix / "bin" / "python"


def conda(prefix: Path) -> Path:
    """Make one as conda does: no ``pyvenv.cfg``, but an interpreter with a standard library of its own."""
    for directory in (prefix / "conda-meta", prefix / "bin", packages(prefix)):
        directory.mkdir(parents=True)
    for each in STANDARD.iterdir():
        if each.name != "site-packages":
            (packages(prefix).parent / each.name).symlink_to(each)
    (packages(prefix) / "torch_of_the_tests.pth").write_text(f"{SITE}\n")
    return Path(shutil.copy(Path(sys.executable).resolve(), prefix / "bin" / "python"))


def with_another_rekindle(prefix: Path) -> Path:
    """Make a virtual environment with the program of that name that others have published."""
    python = virtual(prefix)
    (packages(prefix) / "rekindle").mkdir()
    (packages(prefix) / "rekindle" / "__init__.py").write_text("raise SystemExit('not ours')\n")
    return python


@pytest.fixture
def script(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    return code / "train.py"


def submit(home: Path, script: Path, found: Path, **variables: str) -> "subprocess.CompletedProcess[str]":
    words = ("submit", "--ranks", "2", "--env", f"FOUND={found}", "train.py")
    return rekindle(home, *words, cwd=script.parent, variables=variables)


def await_end(server: ServeProcess, timeout: float = 180) -> str:
    api = RestApi(server)
    until(lambda: api.states().get("train") in ("succeeded", "failed"), "the job has ended", timeout)
    return str(api.states()["train"])


@pytest.mark.parametrize("make", [virtual, conda, with_another_rekindle])
def test_a_job_runs_in_the_active_environment_which_needs_nothing_of_rekindle(
    server: ServeProcess, script: Path, tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    prefix, report = tmp_path / "environment", tmp_path / "report.json"
    make(prefix)
    done = submit(server.home, script, report, **{"CONDA_PREFIX" if make is conda else "VIRTUAL_ENV": str(prefix)})
    assert done.returncode == 0, done.stderr
    assert await_end(server) == "succeeded"
    found = json.loads(report.read_text())
    assert (found["prefix"], found["ranks"], found["run"]) == (str(prefix), 2, "rekindle.training.run")
    assert Path(found["rekindle"]).is_relative_to(server.home / "worker-copy")


def test_the_setting_is_used_where_the_shell_has_no_torch_and_a_refusal_names_all_that_were_tried(
    home: Path, script: Path, tmp_path: Path
) -> None:
    """The server is started by an interpreter without torch, as of a base install."""
    own, configured, shell = bare(tmp_path / "own"), virtual(tmp_path / "set"), bare(tmp_path / "shell")
    link_all_but_torch(packages(tmp_path / "own"))
    under, setting = ["/bin/sh", "-c", f'shift; exec {own} "$@"', "sh"], {"REKINDLE_PYTHON": str(configured)}
    report = tmp_path / "report.json"
    with ServeProcess(home, under=under, environment=setting) as server:
        done = submit(home, script, report, VIRTUAL_ENV=str(tmp_path / "shell"))
        assert done.returncode == 0, done.stderr
        assert f"{shell}, of the active environment, is not used" in " ".join(done.stderr.split())
        assert await_end(server) == "succeeded"
        assert json.loads(report.read_text())["prefix"] == str(tmp_path / "set")
    configured.unlink()
    with ServeProcess(home, under=under, environment=setting) as server:
        refused = submit(home, script, report, VIRTUAL_ENV=str(tmp_path / "shell"))
        assert refused.returncode == 2
        said = " ".join(refused.stderr.split())
        assert [str(each) in said for each in (shell, configured, own)] == [True, True, True]


def link_all_but_torch(directory: Path) -> None:
    """Give a virtual environment rekindle and what it needs."""
    for each in SITE.iterdir():
        if not each.name.startswith(("torch", "nvidia")) and not (directory / each.name).exists():
            (directory / each.name).symlink_to(each)


def test_an_interpreter_that_is_removed_after_the_submit_fails_the_job_with_its_path(
    server: ServeProcess, script: Path, tmp_path: Path
) -> None:
    python = virtual(tmp_path / "environment")
    words = ("submit", "--hold", "--python", str(python), "train.py")
    assert rekindle(server.home, *words, cwd=script.parent).returncode == 0
    shutil.rmtree(tmp_path / "environment")
    rekindle(server.home, "resume", "train")
    assert await_end(server) == "failed"
    assert str(python) in rekindle(server.home, "show", "train").stdout
