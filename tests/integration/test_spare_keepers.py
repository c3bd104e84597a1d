"""Spare keepers that are killed, stopped or out of date; most of these have not imported torch, to be quick."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import rekindle
from e2e.waiting import until
from job_examples import a_job, cpu_machine
from rekindle.contract.processes import ProcessIdentity
from rekindle_service.config.home import Home
from rekindle_service.launch.isolation.job_isolation import Isolation
from rekindle_service.launch.local import spare_keepers
from rekindle_service.launch.local.local_launcher import KeeperLauncher, default_keys, keeper_environment
from rekindle_service.launch.local.spare_keepers import (
    ForkedKeeper,
    SpareError,
    SpareKeepers,
    SpareKey,
    SpareProcess,
    keys_to_keep,
    spare_key,
)

LIGHT = """
import json, os, sys, time
import rekindle.keeper.attempt.running_attempt
from rekindle.keeper import spare
import torch, torch.version

def main(run_dir):
    opened = [int(name) for name in os.listdir("/proc/self/fd")]
    state = {"environment": dict(os.environ), "cwd": os.getcwd(), "argv": sys.argv[1:], "opened": max(opened)}
    print(json.dumps(state), flush=True)
    for _ in range(30_000):  # a limit for the case that its test fails
        if os.path.exists("stop"):
            break
        time.sleep(0.01)
    return 0

spare.preload_torch = lambda: []
spare.serve(sys.argv[1], main)
"""
THREADED = LIGHT.replace("lambda: []", "lambda: __import__('numpy') and []")
"""numpy starts the threads of OpenBLAS when it is imported."""


def spare_keepers_of(code: str) -> SpareKeepers:
    def make(key: SpareKey, inherited: Mapping[str, str]) -> SpareProcess:
        return SpareProcess(key, inherited, ("-P", "-c", code))

    return SpareKeepers(1, 0, os.environ, make)


def key_of(packages: Path) -> SpareKey:
    return spare_key(sys.executable, {"PYTHONPATH": str(packages), "LC_ALL": "C.UTF-8"})  # else Python sets LC_CTYPE


def launch(spares: SpareKeepers, key: SpareKey, run: Path, **environment: str) -> ForkedKeeper | None:
    run.mkdir(exist_ok=True)
    request = {"run_dir": str(run), "cwd": str(run), "environment": {**dict(key.variables), **environment}}
    with (run / "keeper.log").open("ab") as log:
        return spares.launch(key, request, log.fileno())


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    """Copies that may be changed: of rekindle, and what stands for torch."""
    directory = tmp_path / "packages"
    shutil.copytree(Path(rekindle.__file__).parent, directory / "rekindle", ignore=lambda *_: ["__pycache__"])
    (directory / "torch").mkdir()
    for name in ("__init__.py", "version.py"):
        (directory / "torch" / name).write_text("")
    return directory


@pytest.fixture
def spares(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[SpareKeepers]:
    """Spare keepers that run LIGHT, or the code that the test chooses."""
    monkeypatch.setattr(spare_keepers, "_QUIET_SECONDS", 0.0)
    spares = spare_keepers_of(getattr(request, "param", LIGHT))
    yield spares
    spares.close()


def pids(spares: SpareKeepers) -> list[int]:
    """Process ids of the spare keepers that are ready."""
    return [spare._process.pid for spare in list(spares._ready.values())]


def start(spares: SpareKeepers, key: SpareKey) -> int:
    """The pid of the spare keeper, once it is ready."""
    spares.start(key)
    return until(lambda: pids(spares), "a spare keeper is ready")[0]


def end(keeper: ForkedKeeper, run: Path) -> dict[str, object]:
    """What the keeper has printed, when it has ended."""
    (run / "stop").touch()
    until(lambda: keeper.poll() is not None, "the keeper has ended")
    printed: dict[str, object] = json.loads((run / "keeper.log").read_text())
    return printed


@pytest.mark.parametrize("spares", [THREADED], indirect=True)
def test_threads_that_end_at_a_fork_keep_no_spare_keeper_from_being_ready(
    spares: SpareKeepers, packages: Path, tmp_path: Path
) -> None:
    key = spare_key(sys.executable, {**dict(key_of(packages).variables), "OPENBLAS_NUM_THREADS": "4"})
    start(spares, key)
    keeper = launch(spares, key, tmp_path / "run")
    assert keeper is not None
    end(keeper, tmp_path / "run")


def test_a_keeper_has_the_environment_of_its_own_job_only(spares: SpareKeepers, packages: Path, tmp_path: Path) -> None:
    key = key_of(packages)
    start(spares, key)
    first = launch(spares, key, tmp_path / "first", SECRET="\udcff" + "x" * 300_000)
    assert first is not None
    second = launch(spares, key, tmp_path / "second", OTHER="2")
    assert second is not None
    expected = f"REKINDLE_RUN_DIR={tmp_path / 'second'}".encode()
    until(lambda: expected in Path(f"/proc/{second.pid}/environ").read_bytes().split(b"\0"), "it shows its run")
    assert str(tmp_path / "second").encode() in Path(f"/proc/{second.pid}/cmdline").read_bytes().split(b"\0")
    assert os.getsid(second.pid) == second.pid
    found = end(second, tmp_path / "second")
    assert found == {
        "environment": {**dict(key.variables), "OTHER": "2"},
        "cwd": str(tmp_path / "second"),
        "argv": [str(tmp_path / "second")],
        "opened": 3,  # that of the list itself
    }
    assert "SECRET" in str(end(first, tmp_path / "first"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_without_an_answer_of_the_spare_keeper_the_job_starts_cold_and_another_spare_keeper_is_made(
    spares: SpareKeepers, packages: Path, tmp_path: Path, number: int
) -> None:
    key = key_of(packages)
    pid = start(spares, key)
    identity = ProcessIdentity.of(pid)
    os.kill(pid, number)
    assert launch(spares, key, tmp_path / "first") is None
    assert not identity.alive()
    until(lambda: pids(spares) not in ([], [pid]), "another one is ready")
    keeper = launch(spares, key, tmp_path / "second")
    assert keeper is not None
    end(keeper, tmp_path / "second")


class _ClosedWhileAsked(SpareProcess):
    """Another thread closes it between a request and the answer."""

    def _receive(self, seconds: float) -> tuple[dict[str, Any], list[int]]:
        self.closing = threading.Thread(target=self.close)
        self.closing.start()
        self.closing.join(0.2)  # as far as it gets
        return super()._receive(seconds)


def test_a_spare_keeper_that_is_closed_while_it_is_asked_forks_none(packages: Path) -> None:
    spare = _ClosedWhileAsked(key_of(packages), os.environ, ("-c", "import time; time.sleep(600)"))
    with Path(os.devnull).open("wb") as log, pytest.raises(SpareError):
        spare.launch({}, log.fileno())
    spare.closing.join()


@pytest.mark.parametrize("name", ["torch/version.py", "rekindle/keeper/attempt/running_attempt.py", "new.py"])
def test_a_spare_keeper_is_replaced_when_a_package_that_it_has_loaded_changes(
    spares: SpareKeepers, packages: Path, tmp_path: Path, name: str
) -> None:
    key = key_of(packages)
    pid = start(spares, key)
    (packages / name).touch()
    assert launch(spares, key, tmp_path / "first") is None
    until(lambda: pids(spares) not in ([], [pid]), "another one is ready")


def test_the_end_of_a_server_waits_for_no_imports(monkeypatch: pytest.MonkeyPatch, packages: Path) -> None:
    monkeypatch.setattr(spare_keepers, "_POLL_SECONDS", 600.0)
    made: list[SpareProcess] = []

    def make(key: SpareKey, inherited: Mapping[str, str]) -> SpareProcess:
        made.append(SpareProcess(key, inherited, ("-P", "-c", "import time; time.sleep(600)")))
        return made[0]

    spares = SpareKeepers(1, 0, os.environ, make)
    spares.start(key_of(packages))
    until(lambda: made, "one has been started")
    spares.close()
    assert not made[0].is_alive()


def test_a_job_whose_forked_keeper_ended_before_its_first_attempt_starts_cold(
    spares: SpareKeepers, home: Path, packages: Path
) -> None:
    Home(home).create()
    machine, job = cpu_machine(2), a_job(python=sys.executable, max_ranks=2, devices=["cpu:0", "cpu:1"])
    launcher = KeeperLauncher(Home(home), machine, packages, spares=spares)
    run = Home(home).run_dir(job.id)
    run.code.mkdir(parents=True)
    start(spares, default_keys(sys.executable, packages, machine, Isolation())[0])
    keeper = launcher(job)
    assert isinstance(keeper, ForkedKeeper)
    (run.code / "stop").touch()
    until(lambda: keeper.poll() is not None, "the keeper has ended")
    cold = launcher(job)
    assert isinstance(cold, subprocess.Popen)
    cold.wait()


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_server_begins_with_spare_keepers_for_jobs_without_variables_of_their_own(
    home: Path, ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    machine, job = cpu_machine(2), a_job(max_ranks=ranks, devices=["cpu:0", "cpu:1"])
    environment = keeper_environment(job, home, machine.slots)
    environment |= Isolation().tmp_environment(Home(home).run_dir(job.id), environment)
    assert default_keys(sys.executable, home, machine, Isolation())[2 - ranks] == spare_key(sys.executable, environment)


def test_the_least_recently_used_is_removed_and_none_is_kept_when_memory_is_short() -> None:
    first, second, third = (SpareKey(name, ()) for name in ("/a", "/b", "/c"))
    assert keys_to_keep([third, second, first], 2, free_memory=10, min_free_memory=5) == [third, second]
    assert keys_to_keep([first], 2, free_memory=4, min_free_memory=5) == []


def test_jobs_that_differ_only_in_what_is_read_later_share_a_spare_keeper() -> None:
    def key(**environment: str) -> SpareKey:
        return spare_key("/python", {"OMP_NUM_THREADS": "1", **environment})

    assert key() == key(CUDA_VISIBLE_DEVICES="3", TOKEN="x", TMPDIR="/x")
    assert len({key(), key(OMP_NUM_THREADS="2"), key(LD_PRELOAD="x.so"), key(PYTHONPATH="/x")}) == 4
