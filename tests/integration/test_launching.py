import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

import rekindle
from e2e.waiting import until
from job_examples import a_job, cpu_machine, gpu_machine, names_in
from rekindle_service.config.home import Home
from rekindle_service.launch.local import interpreter, local_launcher
from rekindle_service.launch.local.interpreter import InterpreterCheck, read_versions
from rekindle_service.launch.local.local_launcher import (
    KeeperLauncher,
    keeper_environment,
    prepare_worker_copy,
    remove_worker_copies,
)


@pytest.fixture
def home(tmp_path):
    home = Home(tmp_path / "home")
    home.create()
    return home


def fake_python(directory, text):
    path = directory / "python"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


# --- the interpreter


TORCH_NEEDED = "must have torch 2.11 or newer"


def test_the_interpreter_of_this_service_can_run_jobs():
    assert InterpreterCheck()(sys.executable) is None


@pytest.mark.parametrize(
    ("text", "rule", "hint"),
    [
        ("exit 3", "must be a working Python", ""),
        ("echo libpython missing >&2; exit 127", "must be a working Python", "libpython missing"),
        ("echo hello", "must be a Python interpreter", ""),
        ("""echo '{"python": [3, 9, 1], "torch": "2.0", "cuda": null}'""", "must be Python 3.11 or newer", ""),
        (
            """echo '{"python": [3, 12, 1], "torch": null, "cuda": null}'""",
            TORCH_NEEDED,
            "it has none",
        ),
        (
            """echo '{"python": [3, 12, 1], "torch": "2.10.1+cpu", "cuda": null}'""",
            TORCH_NEEDED,
            "it has 2.10.1",
        ),
        ("kill -9 $$", "must be a working Python", ""),
    ],
)
def test_an_interpreter_that_cannot_run_jobs_is_refused_with_the_reason(tmp_path, text, rule, hint):
    python = fake_python(tmp_path, text)
    error = InterpreterCheck()(python)
    assert (error.field, error.rule, error.value) == ("python", rule, python)
    assert hint in (error.hint or "")


def test_an_interpreter_that_does_not_answer_is_not_waited_for_for_ever(tmp_path, monkeypatch):
    monkeypatch.setattr(interpreter, "_SECONDS", 0.2)
    assert "must answer within" in InterpreterCheck()(fake_python(tmp_path, "exec sleep 600")).rule


@pytest.mark.parametrize("python", ["/nowhere/python", "python", "", "/etc/passwd", "/etc", "/usr/bin/python3\0"])
def test_what_is_no_executable_file_is_refused(python):
    assert InterpreterCheck()(python).field == "python"


@pytest.mark.parametrize(("end", "times"), [("exit 1", 1), ("kill -9 $$", 2)])
def test_an_interpreter_is_asked_once_until_it_changes_unless_it_was_killed(tmp_path, end, times):
    log = tmp_path / "asked"
    check, python = InterpreterCheck(), fake_python(tmp_path, f"echo >> {log}; {end}")
    assert check(python) == check(python)
    assert log.read_text() == "\n" * times
    os.utime(python, (1, 1))
    check(python)
    assert log.read_text() == "\n" * (times + 1)


def test_the_interpreter_gets_nothing_of_the_servers_secrets(tmp_path, monkeypatch):
    monkeypatch.setenv("REKINDLE_TOKEN", "secret")
    assert "secret" not in InterpreterCheck()(fake_python(tmp_path, "env >&2; exit 1")).hint


def test_a_job_that_names_no_interpreter_gets_that_of_the_setting_unless_it_cannot_run_jobs(tmp_path):
    usable = fake_python(tmp_path, """echo '{"python": [3, 12, 1], "torch": "2.11.0", "cuda": "13.0"}'""")
    assert InterpreterCheck(configured=usable).default() == usable
    assert InterpreterCheck(configured=str(tmp_path / "gone")).default() == sys.executable
    assert InterpreterCheck().default() == sys.executable


def test_a_refusal_of_the_servers_own_interpreter_names_that_of_the_setting_too(tmp_path):
    check = InterpreterCheck(configured="/gone/python", unreachable="must start, which it does not")
    assert [error.value for error in check.errors(sys.executable)] == ["/gone/python", sys.executable]
    assert [error.value for error in check.errors("/other/python")] == ["/other/python"]
    assert InterpreterCheck(configured="/gone/python").errors(sys.executable) == []


def test_the_versions_of_torch_are_read_without_importing_it(tmp_path, monkeypatch):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "version.py").write_text("__version__ = '2.12.0+cu130'\ncuda = '13.0'\n")
    python = fake_python(tmp_path, f'shift; PYTHONPATH={tmp_path} exec {sys.executable} -S "$@"')
    versions = read_versions(python)
    assert (versions.torch, versions.cuda) == ("2.12.0+cu130", "13.0")
    assert str(versions).endswith("torch 2.12.0+cu130, CUDA 13.0")
    (package / "__init__.py").unlink()
    assert read_versions(python).torch is None, "a directory is no torch"


def test_the_interpreter_of_a_person_is_refused_where_the_sandbox_hides_it_and_never_run(tmp_path):
    log = tmp_path / "asked"
    python = fake_python(tmp_path, f"echo >> {log}")
    check = InterpreterCheck(isolated=True, hidden=lambda path: path.is_relative_to(tmp_path))
    assert check(python).rule == "must be visible in the sandbox of jobs"
    assert InterpreterCheck(isolated=True)(python) is None
    assert not log.exists()


# --- the keeper's environment


def environment(job, inherited=None, machine=None):
    machine = machine or cpu_machine(2)
    return keeper_environment(job, "/worker-path", machine.slots, inherited or {"PATH": "/bin"}, job.spec.env)


def test_what_the_server_inherited_from_another_torchrun_is_scrubbed():
    inherited = {"PATH": "/bin", "RANK": "3", "PET_NNODES": "9", "REKINDLE_TOKEN": "t", "PYTHONPATH": "/server"}
    assert environment(a_job(), inherited) == {
        "PATH": "/bin", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": "/worker-path",
    }  # fmt: skip


def test_the_jobs_own_variables_are_set_and_its_path_comes_behind_ours():
    found = environment(a_job(env={"KEY": "v", "PYTHONPATH": "/mine"}))
    assert (found["KEY"], found["PYTHONPATH"]) == ("v", "/worker-path:/mine")


def test_several_ranks_get_one_thread_each_unless_the_job_says_otherwise():
    assert environment(a_job(max_ranks=2))["OMP_NUM_THREADS"] == "1"
    assert environment(a_job(max_ranks=2, env={"OMP_NUM_THREADS": "4"}))["OMP_NUM_THREADS"] == "4"
    assert "OMP_NUM_THREADS" not in environment(a_job())


def test_a_job_sees_the_gpus_of_its_slots_whatever_it_asks_for():
    job = a_job(device="cuda", devices=["cuda:1"], env={"CUDA_VISIBLE_DEVICES": "0"})
    assert environment(job, machine=gpu_machine(2))["CUDA_VISIBLE_DEVICES"] == "GPU-0001"


# --- the keeper


def test_a_keeper_is_started_apart_from_the_server(home):
    job = a_job(python=sys.executable, devices=["cpu:0"])
    run_dir = home.run_dir(job.id)
    run_dir.code.mkdir(parents=True)
    # A user's own module of the name of ours, or of the standard library, must not be what the keeper imports.
    (run_dir.code / "rekindle.py").write_text("raise SystemExit('shadowed')")
    (run_dir.code / "json.py").write_text("raise SystemExit('shadowed')")
    run_dir.spec.write_text("{}")
    launcher = KeeperLauncher(home, cpu_machine(1), prepare_worker_copy(home))
    with launcher(job) as process:
        assert os.getsid(process.pid) == process.pid
        assert Path(f"/proc/{process.pid}/cwd").readlink() == run_dir.code
        assert Path(f"/proc/{process.pid}/fd/0").readlink() == Path("/dev/null")
        process.wait()
    log = run_dir.keeper_log.read_text()
    assert "shadowed" not in log
    assert "the keeper cannot continue" in log  # the real one: this job's spec is empty
    assert run_dir.keeper_log.stat().st_mode & 0o777 == 0o600


def test_another_interpreter_finds_a_copy_of_rekindle_and_nothing_else_of_this_installation(home):
    path = prepare_worker_copy(home)
    assert names_in(path) == ["rekindle"]
    command = [sys.executable, "-P", "-S", "-c", "import rekindle.contract; print(rekindle.__file__)"]
    found = subprocess.run(command, env={"PYTHONPATH": str(path)}, capture_output=True, text=True, check=True)
    assert found.stdout == f"{path / 'rekindle' / '__init__.py'}\n"
    assert prepare_worker_copy(home) == path


def test_a_copy_that_was_changed_or_half_written_is_made_again(home):
    path = prepare_worker_copy(home)
    module = path / "rekindle" / "__init__.py"
    sound = module.read_bytes()
    for change in (lambda: module.write_bytes(b""), module.unlink, (path / "rekindle" / "json.py").touch):
        change()
        assert prepare_worker_copy(home) == path
        assert module.read_bytes() == sound
        assert not (path / "rekindle" / "json.py").exists()
    assert names_in(home.worker_copies) == [path.name]


def test_another_version_gets_a_copy_of_its_own_and_the_old_one_goes_when_no_job_runs(home, tmp_path, monkeypatch):
    first = prepare_worker_copy(home)
    shutil.copytree(Path(rekindle.__file__).parent, tmp_path / "rekindle")
    (tmp_path / "rekindle" / "new.py").touch()
    found = SimpleNamespace(submodule_search_locations=[str(tmp_path / "rekindle")])
    monkeypatch.setattr(local_launcher, "find_spec", lambda _: found)
    second = prepare_worker_copy(home)
    assert sorted(names_in(home.worker_copies)) == sorted([first.name, second.name])
    remove_worker_copies(second)
    assert names_in(home.worker_copies) == [second.name]


def test_the_launch_of_an_interpreter_that_is_missing_names_it(home):
    job = a_job(python="/nowhere/python")
    run_dir = home.run_dir(job.id)
    run_dir.code.mkdir(parents=True)
    with pytest.raises(FileNotFoundError, match="/nowhere/python"):
        KeeperLauncher(home, cpu_machine(1), prepare_worker_copy(home))(job)


def test_an_interpreter_that_does_not_answer_delays_no_one_who_names_another(tmp_path):
    check, started = InterpreterCheck(), tmp_path / "started"
    known, slow = fake_python(tmp_path, "exit 3"), tmp_path / "slow"
    slow.mkdir()
    check(known)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(check, fake_python(slow, f"echo > {started}; read line < {slow}/fifo; exit 1"))
        os.mkfifo(slow / "fifo")
        until(started.exists, "it is asked")
        assert check(known).rule == "must be a working Python"
        assert not answer.done()
        (slow / "fifo").write_text("go\n")
