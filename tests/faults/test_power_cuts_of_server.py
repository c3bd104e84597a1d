"""A home on a real ext4 that is cut off at random moments: what a person was told is true afterwards.

``--soak N`` cuts N times. Snapshots: ``test_power_cuts.py``.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from disks import Ext4
from faults.faulty_run import SCRIPTS
from rekindle.contract.run_dir.journal import RecordType, read_journal
from rekindle.contract.run_dir.paths import RunDir

CUTS = 3
LATEST = 3.0  # seconds after a server has recovered


@pytest.fixture
def disk(tmp_path: Path) -> Ext4:
    return Ext4(tmp_path / "image", tmp_path / "disk", megabytes=320)


class Server:
    """See ``scripts/cut_server.py``."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPTS / "cut_server.py")],
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._pid = 0

    def begin(self) -> dict[str, str]:
        """A new server; the state of every job that it has found, by id."""
        assert self._process.stdin is not None
        print(self._home, file=self._process.stdin, flush=True)
        rows = {}
        while (words := self._words()) != ["recovered"]:
            assert words != ["stopped"], "the server cannot start"
            if words[0] == "begun":
                self._pid = int(words[1])
            else:
                rows[words[1]] = words[2]
        return rows

    def die(self) -> list[list[str]]:
        """With all that it has told since ``begin``; its keepers die as well, as when the machine goes down."""
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        told = []
        while (words := self._words()) != ["stopped"]:
            told.append(words)
        kill_users(self._home)
        return told

    def close(self) -> None:
        self._process.communicate(timeout=30)

    def _words(self) -> list[str]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        return line.split()


def kill_users(home: Path) -> None:
    """The keepers of this home, which their arguments name."""
    key = str(home / "runs").encode()
    while pids := [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal() and _names(each, key)]:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def _names(process: Path, key: bytes) -> bool:
    with suppress(OSError):
        return key in (process / "cmdline").read_bytes()
    return False


@pytest.fixture
def server(disk: Ext4) -> Iterator[Server]:
    server = Server(disk.folder / "home")
    yield server
    server.close()


@pytest.mark.timeout(0)
def test_what_was_acknowledged_before_a_power_cut_is_true_after_it(
    disk: Ext4, server: Server, request: pytest.FixtureRequest
) -> None:
    cuts = request.config.getoption("--soak") or CUTS
    chance = random.Random(cuts)
    submitted: set[str] = set()
    ended: dict[str, str] = {}
    started: dict[str, int] = {}
    seen = Counter[str]()
    disk.plug_in()
    try:
        server.begin()
        for _ in range(cuts):
            time.sleep(chance.uniform(0, LATEST))
            disk.cut_off()
            told = server.die()
            submitted |= {words[1] for words in told if words[0] == "submitted"}
            ended |= {words[1]: words[2] for words in told if words[0] == "ended"}
            disk.unplug()
            disk.plug_in()
            rows = server.begin()
            assert submitted <= rows.keys(), "an acknowledged job is gone"
            assert {job_id: rows[job_id] for job_id in ended} == ended, "a job that had ended runs again"
            for job_id in ended:
                assert started.setdefault(job_id, attempts(disk.folder, job_id)) == attempts(disk.folder, job_id)
            seen["unacknowledged and kept"] += len(rows.keys() - submitted)
            seen["in the middle"] += sum(state not in ("queued", "succeeded") for state in rows.values())
        told = server.die()
    finally:
        kill_users(disk.folder / "home")
        disk.unplug()
    print(f"{cuts} cuts: {len(submitted)} acknowledged jobs, {len(ended)} of them ended; {dict(seen)}")
    assert submitted


def attempts(disk: Path, job_id: str) -> int:
    """How often the job was started."""
    records = read_journal(RunDir(disk / "home" / "runs" / job_id).journal)
    return sum(record.type is RecordType.ATTEMPT_STARTED for record in records)
