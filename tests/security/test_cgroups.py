"""The cgroup of a job: its limits are written, and what a lost keeper left in it is ended."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from e2e.waiting import until
from rekindle_service.launch.isolation import enter_sandbox as enter
from rekindle_service.launch.isolation.sandbox import CgroupLimits, CgroupParent, NoCgroupError

NONE = CgroupLimits()


@pytest.fixture
def real() -> Iterator[Path]:
    """A cgroup of version 2 that this test has made."""
    for root in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        parent = root / f"rekindle-test-{os.getpid()}"
        if not (root / "cgroup.controllers").exists():
            continue
        with suppress(OSError):
            parent.mkdir()
            break
    else:
        pytest.skip("needs a writable cgroup file system of version 2")
    yield parent
    for directory in (*parent.glob("*/"), parent):
        with suppress(OSError):
            (directory / "cgroup.kill").write_text("1")
        directory.rmdir()


@pytest.fixture
def fake(tmp_path: Path) -> Path:
    """Files like those of a cgroup with all controllers, which this machine may not have."""
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    return tmp_path


def test_limits_are_written_to_the_files_of_their_controllers(fake: Path) -> None:
    parent = CgroupParent(fake, CgroupLimits(memory_bytes=1 << 30, cpus=1.5, processes=200))
    parent.check()
    assert (fake / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"
    assert parent.create("job") == fake / "job" / "cgroup.procs"
    files = {path.name: path.read_text() for path in (fake / "job").iterdir()}
    assert files == {
        "memory.max": "1073741824", "memory.swap.max": "0", "cpu.max": "150000 100000", "pids.max": "200",
        "cgroup.kill": "1",
    }  # fmt: skip


def test_a_limit_without_its_controller_is_refused(real: Path, tmp_path: Path) -> None:
    (real / "inner").mkdir()
    with pytest.raises(NoCgroupError, match="lacks the controllers memory"):
        CgroupParent(real / "inner", CgroupLimits(memory_bytes=1 << 30)).check()
    CgroupParent(real, NONE).check()
    with pytest.raises(NoCgroupError, match="is no cgroup"):
        CgroupParent(tmp_path, NONE).check()


def test_a_job_starts_in_its_cgroup_and_what_an_earlier_keeper_left_there_is_ended(real: Path, tmp_path: Path) -> None:
    parent = CgroupParent(real, NONE)
    plan = {
        "user": None, "run_dir": str(tmp_path), "cgroup": str(parent.create("job")), "no_new_privs": True,
        "limits": {"RLIMIT_FSIZE": 1 << 20, "RLIMIT_NOFILE": 100}, "directories": [str(tmp_path / "own")],
        "cwd": str(tmp_path), "bwrap": None, "environment": {"A": "b"},
        "command": ["/bin/sh", "-c", "ulimit -n; ulimit -f; env; cat /proc/self/cgroup; exec sleep 600"],
    }  # fmt: skip
    command = [sys.executable, "-I", "-S", enter.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as left:
        assert left.stdin is not None
        assert left.stdout is not None
        left.stdin.write(json.dumps(plan).encode())
        left.stdin.close()
        lines = [left.stdout.readline().decode().strip() for _ in range(2)]
        while not (line := left.stdout.readline().decode().strip()).startswith("0::"):
            lines.append(line)
        assert line.endswith(f"{real.name}/job")
        assert lines[0] == "100"
        assert "A=b" in lines
        parent.create("job")  # for the next keeper
        assert left.wait(timeout=60) == -9

    def remaining() -> list[str]:
        parent.create("other")
        return [path.name for path in real.iterdir() if path.is_dir()]

    until(lambda: remaining() == ["other"], "the kernel lets go of the cgroup of a process that it has killed")
    assert (tmp_path / "own").stat().st_mode & 0o777 == 0o700
