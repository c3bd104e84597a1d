"""An update of the installed package while a job runs: files are replaced in place, as by ``pip install --upgrade``."""

import os
import shutil
import signal
from pathlib import Path

import pytest

import rekindle
import rekindle_service
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from rekindle.contract.locks import lock_holder
from rekindle.contract.run_dir.paths import RunDir
from rest_api import RestApi

PACKAGES = [Path(package.__file__).parent for package in (rekindle, rekindle_service)]
MARK = "\nUPDATED = True\n"

SCRIPT = """
import os, pathlib, time
import rekindle
here = pathlib.Path({here!r})
attempt = os.environ["REKINDLE_ATTEMPT"]
(here / f"attempt{{attempt}}").write_text(f"{{os.getpid()}} {{getattr(rekindle, 'UPDATED', False)}}")
while not (here / "go").exists():
    time.sleep(0.05)
"""


def install(into: Path, mark: str = "") -> None:
    for package in PACKAGES:
        shutil.rmtree(into / package.name, ignore_errors=True)
        shutil.copytree(package, into / package.name, ignore=shutil.ignore_patterns("__pycache__"))
        with (into / package.name / "__init__.py").open("a") as file:
            file.write(mark)


def test_a_job_keeps_its_version_over_an_update_and_a_failure_and_a_new_job_gets_the_new_one(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, code = tmp_path / "site", tmp_path / "code"
    site.mkdir()
    code.mkdir()
    (code / "train.py").write_text(SCRIPT.format(here=str(code)))
    install(site)
    monkeypatch.setenv("PYTHONPATH", str(site))
    with ServeProcess(home) as server:
        api = RestApi(server)
        job_id = api.post("/jobs", {"script": "train.py", "code": {"path": str(code)}, "device": "cpu"})["id"]
        lock = RunDir(home / "runs" / job_id).keeper_lock
        until((code / "attempt1").exists, "the job runs", 120)
        keeper = lock_holder(lock)
        install(site, MARK)
        server.stop()
        server.start()
        assert lock_holder(lock) == keeper is not None
        assert api.get(f"/jobs/{job_id}")["attempt"] == 1
        rank, updated = (code / "attempt1").read_text().split()
        assert updated == "False"
        os.kill(int(rank), signal.SIGKILL)
        until((code / "attempt2").exists, "the next attempt runs", 120)
        assert lock_holder(lock) == keeper
        assert (code / "attempt2").read_text().endswith("False")  # forked from the keeper, which has the old code
        (code / "go").touch()
        until(lambda: api.get(f"/jobs/{job_id}")["state"] == "succeeded", "the job has ended", 120)
        # a job of the new version
        (code / "go").unlink()
        api.post("/jobs", {"script": "train.py", "code": {"path": str(code)}, "device": "cpu", "name": "second"})
        (code / "attempt1").unlink()
        until((code / "attempt1").exists, "a job of the new version runs", 120)
        assert (code / "attempt1").read_text().endswith("True")
        (code / "go").touch()
        until(lambda: api.states()["second"] == "succeeded", "it has ended", 120)
