"""A hostile script in a real job: what it reaches under each way of isolation, and that the job works all the same."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.serve_process import ServeProcess
from e2e.waiting import until
from rekindle.contract.locks import lock_holder
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.client import Client, ProblemError
from rekindle_service.config.home import Home
from rekindle_service.config.settings import Settings
from rekindle_service.launch.isolation import job_isolation
from rekindle_service.launch.isolation.job_isolation import IsolationError, isolation_of
from rekindle_service.launch.isolation.sandbox import Sandbox
from rekindle_service.launch.local.interpreter import InterpreterCheck, unreachable_interpreter
from rekindle_service.launch.local.local_launcher import prepare_worker_copy
from security.isolated_server import client_of, isolated_server, needs_bubblewrap, needs_root, open_home

SCRIPTS = Path(__file__).parent / "scripts"
NOBODY = pwd.getpwnam("nobody").pw_uid
GAMES = pwd.getpwnam("games").pw_uid
DENIED = {"PermissionError", "FileNotFoundError", "ProcessLookupError", "OSError"}

WAYS = {
    # name: (user of the server, user of the jobs, settings)
    "user": (None, NOBODY, {"job_users": '{"*": "nobody"}', "job_open_files": "700"}),
    "sandbox": ("games", GAMES, {"sandbox": "true", "pass_env": '["OF_THE_SERVER"]'}),
    "both": (None, NOBODY, {"job_users": '{"*": "nobody"}', "sandbox": "true", "sandbox_network": "none"}),
}
pytestmark = [needs_root, pytest.mark.long]


class IsolatedJob:
    """A training under test, in a server of its own."""

    def __init__(self, home: Path, server: ServeProcess, client: Client, way: str) -> None:
        self.home, self.server, self.client, self.way = home, server, client, way
        code = home.parent / "code"
        code.mkdir()
        code.chmod(0o755)
        shutil.copy(SCRIPTS / "probe.py", code)
        self.other = self._other_run()
        port = server.url.rpartition(":")[2]
        self.id = client.submit(
            {
                "script": "probe.py",
                "code": {"path": str(code)},
                "ranks": 2,
                "args": [str(home), f"{server.pid},{os.getpid()}", str(self.other), port],
                "env": {"LITERAL": "s3cret", "FROM_FILE": {"file": "/etc/hostname"}},
                "snapshot": {"every_steps": 5},
            }
        )["id"]
        self.run_dir = RunDir(home / "runs" / self.id)

    def _other_run(self) -> Path:
        """The run directory of another owner's job; of the same user where users are not what keeps jobs apart."""
        other = self.home / "runs" / "otherjob00"
        other.mkdir(mode=0o700)
        for name in ("spec.json", "journal.jsonl", "intent.json"):
            (other / name).write_text("{}")
            (other / name).chmod(0o600)
        uid = {"user": GAMES, "sandbox": GAMES, "both": NOBODY}[self.way]
        for path in (other, *other.iterdir()):
            os.chown(path, uid, uid)
        return other

    def state(self, job_id: str | None = None) -> str:
        return str(self.client.job(job_id or self.id)["state"])

    def reach(self, step: int) -> dict[str, Any]:
        def job() -> dict[str, Any] | None:
            found = dict(self.client.job(self.id))
            log = self.run_dir.keeper_log.read_text() if self.run_dir.keeper_log.exists() else ""
            assert found["state"] != "failed", (found["outcome"], log)
            return found if (found["step"] or 0) >= step and found["state"] == "running" else None

        return until(job, f"the job has reached step {step}", timeout=90)

    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.run_dir.code / "report.json").read_text())
        return found

    def keeper(self) -> int | None:
        return lock_holder(self.run_dir.keeper_lock)


@pytest.fixture(params=["user", "sandbox", pytest.param("both", marks=pytest.mark.soak)])
def job(request: pytest.FixtureRequest) -> Iterator[IsolatedJob]:
    user, _, settings = WAYS[request.param]
    with client_of(user, settings) as (home, server, client, _):
        job = IsolatedJob(home, server, client, request.param)
        yield job
        if (keeper := job.keeper()) is not None:
            os.kill(keeper, signal.SIGTERM)
            until(lambda: job.keeper() is None, "the keeper has ended")


def test_a_hostile_job_reaches_nothing_and_survives_what_any_job_survives(job: IsolatedJob) -> None:
    first = job.reach(6)
    check_report(job)
    check_processes(job)

    job.client.inject(job.id, "kill", 1)
    until(lambda: job.client.job(job.id)["restarts"] == 1, "the killed rank has been noticed")
    assert job.reach(first["step"] + 1)["restarts"] == 1

    keeper = job.keeper()
    job.server.kill()
    job.server.start()
    step = job.client.job(job.id)["step"] or 0
    job.reach(step + 1)
    assert job.keeper() == keeper  # the new server has found it

    assert keeper is not None
    os.kill(keeper, signal.SIGKILL)
    until(lambda: job.keeper() not in (None, keeper), "another keeper has been started")
    job.reach(step + 2)

    job.client.drain(job.id)
    until(lambda: job.state() == "queued", "the job has been drained")
    drained = job.client.job(job.id)["step"]
    job.client.resume(job.id)
    job.reach((drained or 0) + 1)
    job.client.cancel(job.id)
    until(lambda: job.state() == "cancelled" and job.keeper() is None, "the job has been cancelled")
    until(lambda: not processes_of(job.run_dir), "no process of the job is left")
    assert not list(Path(tempfile.gettempdir()).glob(f"rekindle-{job.id}-*"))
    assert not [path for path in job.run_dir.tmp.rglob("*") if path.is_file()]
    assert not job.run_dir.memory.exists()
    assert not (job.home / "evil").exists()


def check_report(job: IsolatedJob) -> None:
    found, (_, uid, settings) = job.report(), WAYS[job.way]
    sandboxed = "sandbox" in settings
    assert found["uid"] == uid
    assert set(found["read"].values()) <= DENIED, found["read"]
    assert found["list_home"] in (None, ["runs", "worker-copy"])
    assert found["list_runs"] in (None, [job.id])
    assert found["write_worker_path"] in DENIED
    assert found["write_system"] in DENIED
    assert set(found["other_run"].values()) <= DENIED
    assert found["other_run_write"] in DENIED
    assert set(found["signals"]) <= DENIED
    assert set(found["environments"]) <= DENIED
    assert found["foreign"] == []
    assert found["socket"] in DENIED
    assert (found["no_new_privs"], int(found["capabilities"], 16), found["core"]) == ("1", 0, 0)
    assert (found["tmp_writable"], found["run_dir"]) == ("allowed", "allowed")
    tmp = Path(found["tmp"])
    assert len(tmp.parts) == 2 if sandboxed else tmp.name.startswith(f"rekindle-{job.id}-")
    if sandboxed:
        assert found["home_writable"] == "allowed"
        assert found["replace_tmp"] == "OSError"  # busy, for the next start mounts it
    if "job_open_files" in settings:
        assert found["open_files"] == 700
    assert (found["server"] == "allowed") == (settings.get("sandbox_network") != "none")
    hostname = Path("/etc/hostname").read_text().removesuffix("\n")
    passed = "server's" if "pass_env" in settings else None
    assert found["secrets"] == {
        "LITERAL": "s3cret", "FROM_FILE": hostname, "FROM_SERVER": None, "OF_THE_SERVER": passed,
    }  # fmt: skip


def check_processes(job: IsolatedJob) -> None:
    """The server sees the ranks by pids of this machine, and gets their stacks and usage."""
    ranks = job.client.ranks(job.id)
    for rank in ranks:
        assert str(job.run_dir.root).encode() in Path(f"/proc/{rank['pid']}/environ").read_bytes()
        assert (rank["state"], rank["process_state"] is not None) == ("running", True)
    assert "probe.py" in job.client.stack(job.id, 1)
    until(lambda: job.client.ranks(job.id)[0]["usage"], "the keeper has measured what the ranks use")
    command_lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.parent.exists()]
    assert not [line for line in command_lines if b"s3cret" in line]  # anybody can read them


def processes_of(run_dir: RunDir) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and str(run_dir.root).encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


def check_submissions(client: Client, home: Path, code: Path) -> None:
    """What is submitted is read with the rights of the job's user, never with those of the server, which is root."""
    closed, key = home.parent / "closed", code / "key"
    closed.mkdir(mode=0o700)
    (closed / "train.py").write_text("")
    key.touch(0o600)
    for directory, message in ((closed, "not found"), (code, "by the user of the job"), (home, "the server's home")):
        with pytest.raises(ProblemError, match=message):
            client.submit({"script": "train.py", "code": {"path": str(directory)}})
    key.unlink()


@needs_bubblewrap
def test_a_library_that_the_job_preloads_is_not_loaded_outside_of_its_sandbox(tmp_path: Path) -> None:
    """LD_PRELOAD in ``env`` is the job's code; in the helper or in bubblewrap it would run with the server's rights."""
    library, seen = Path("/var/tmp/rekindle-spy.so"), Path("/var/tmp/rekindle-spy")  # noqa: S108  # open to all
    spy = tmp_path / "spy.c"
    spy.write_text(
        "#include <stdio.h>\n#include <unistd.h>\n"
        "__attribute__((constructor)) static void spy(void) {\n"
        f'  FILE *file = fopen("{seen}", "a");\n'
        '  if (file) { fprintf(file, "%d\\n", getuid()); fclose(file); }\n}\n'
    )
    if subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, spy], check=False, capture_output=True).returncode:
        pytest.skip("needs gcc")
    try:
        library.chmod(0o755)
        settings = {"job_users": '{"*": "nobody"}', "sandbox": "true", "sandbox_read": f'["{library}"]'}
        with open_home() as home, isolated_server(home, **settings), Client.from_home(Settings(home=home)) as client:
            code = home.parent / "code"
            code.mkdir()
            code.chmod(0o755)
            (code / "train.py").write_text("import os; print('in', os.environ['LD_PRELOAD'])\n")
            check_submissions(client, home, code)
            job = client.submit(
                {"script": "train.py", "code": {"path": str(code)}, "env": {"LD_PRELOAD": str(library)}, "warm": False}
            )
            until(lambda: client.job(job["id"])["state"] == "succeeded", "the job has ended", timeout=90)
            assert "rekindle-spy.so" in client.log_tail(job["id"], 0, "stdout", 1, 5).data.decode()
        assert not seen.exists(), seen.read_text()
    finally:
        library.unlink()
        seen.unlink(missing_ok=True)


@needs_bubblewrap
def test_a_sandbox_hides_a_home_that_is_reached_by_a_link(tmp_path: Path) -> None:
    real = Home(tmp_path / "real")
    for directory in (real.worker_copies, real.runs / "a" / "code", real.runs / "a" / "tmp"):
        directory.mkdir(parents=True)
    real.token.write_text("secret")
    (tmp_path / "link").symlink_to("real")
    home = Home(tmp_path / "link")
    run_dir = RunDir(home.runs / "a")
    command = Sandbox("bwrap", home, write=(str(tmp_path),)).command(run_dir, Path("/root"), run_dir.tmp)
    listing = subprocess.run([*command, "find", tmp_path, home.runs], capture_output=True, text=True, check=True).stdout
    assert str(run_dir.code) in listing
    assert "token" not in listing
    without = Sandbox("bwrap", home).without_home(run_dir.tmp)
    listing = subprocess.run([*without, "find", tmp_path, home.runs], capture_output=True, text=True, check=True).stdout
    assert str(run_dir.tmp) in listing
    assert "token" not in listing


def test_users_need_a_kernel_that_lets_nobody_link_files_of_others(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = home / "protected_hardlinks"
    setting.write_text("0\n")
    monkeypatch.setattr(job_isolation, "_PROTECTED_HARDLINKS", setting)
    with pytest.raises(IsolationError, match="needs fs"):
        isolation_of(Settings(home=home, job_users={"*": "nobody"}), Home(home))


@pytest.mark.parametrize(
    ("uid", "settings", "message"),
    [
        (GAMES, {"job_users": {"*": "nobody"}}, "job_users needs a server that runs as root"),
        (0, {"job_users": {"*": "nosuchuser"}}, "no UNIX user 'nosuchuser'"),
        (0, {"job_users": {"*": "root"}}, "must not run as 'root'"),
        (0, {"job_users": {"*": "nobody"}}, "the UNIX user nobody cannot reach"),
        (0, {"sandbox": True}, "a sandbox needs a server that does not run as root"),
        (GAMES, {"sandbox": True, "socket": "/opt/rekindle.sock"}, "could connect as the server's own user"),
        (0, {"job_memory_bytes": 100_000_000}, "need the setting cgroup"),
        (0, {"cgroup": "/sys/fs/cgroup/nowhere"}, "is no cgroup"),
    ],
)
def test_a_server_does_not_start_without_the_isolation_that_it_was_asked_for(
    home: Path, monkeypatch: pytest.MonkeyPatch, uid: int, settings: dict[str, Any], message: str
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    (home / "runs").mkdir()
    with pytest.raises(IsolationError, match=message):
        isolation_of(Settings(home=home, **settings), Home(home))


@pytest.mark.parametrize(
    "settings",
    [
        {"job_users": {"*": "nobody"}},
        pytest.param({"job_users": {"*": "nobody"}, "sandbox": True}, marks=needs_bubblewrap),
    ],
)
def test_an_interpreter_that_jobs_cannot_start_is_found_before_any_job_fails(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]
) -> None:
    with open_home() as directory:
        home = Home(directory)
        home.create(traversable=True)
        closed = directory.parent / "closed"
        closed.mkdir(mode=0o700)
        python = closed / "python"
        python.symlink_to(sys.executable)
        monkeypatch.setattr(sys, "executable", str(python))
        unreachable = unreachable_interpreter(
            isolation_of(Settings(home=directory, **settings), home), home, prepare_worker_copy(home)
        )
        assert unreachable is not None
        assert "as the user nobody" in unreachable
        error = InterpreterCheck(isolated=True, unreachable=unreachable)(str(python))
        assert error is not None
        assert (error.value, error.rule) == (str(python), unreachable)
        assert InterpreterCheck(isolated=True, unreachable=unreachable)("/usr/bin/env") is None
        assert list(home.runs.iterdir()) == []
