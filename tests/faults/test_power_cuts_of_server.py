"""A home on a real ext4 that is cut off at random moments: what the server has acknowledged is true afterwards.

``--soak N`` cuts N times. Snapshots: ``test_power_cuts.py``.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from api_server import api_server
from disks import Ext4
from faults.faulty_run import SCRIPTS
from rekindle.contract.files import read_json
from rekindle.contract.run_dir.journal import RecordType, read_journal
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.config.home import Home
from rekindle_service.store import Store
from script_process import ScriptProcess

CUTS = 3
LATEST = 3.0  # seconds after a server has recovered


@pytest.fixture
def disk(tmp_path: Path) -> Ext4:
    return Ext4(tmp_path / "image", tmp_path / "disk", megabytes=320)


class Server(ScriptProcess):
    """See ``scripts/cut_server.py``."""

    def __init__(self, home: Path) -> None:
        super().__init__(SCRIPTS / "cut_server.py")
        self._home, self._pid = home, 0

    def begin(self) -> dict[str, str]:
        """A new server; the state of every job that it has found, by id."""
        self.request(self._home)
        rows = {}
        while (words := self.line().split()) != ["recovered"]:
            if words[0] == "stopped":
                self._pid = 0
                raise AssertionError("the server cannot start")
            if words[0] == "begun":
                self._pid = int(words[1])
            else:
                rows[words[1]] = words[2]
        return rows

    def die(self) -> list[list[str]]:
        """Kill the server and its keepers, as when the machine goes down; all that it has reported since ``begin``."""
        reported = []
        if self._pid != 0:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            while (words := self.line().split()) != ["stopped"]:
                reported.append(words)
            self._pid = 0
        kill_users(self._home)
        return reported


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
    server = Server(disk.directory / "home")
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
            reported = server.die()
            submitted |= {words[1] for words in reported if words[0] == "submitted"}
            ended |= {words[1]: words[2] for words in reported if words[0] == "ended"}
            disk.unplug()
            disk.plug_in()
            rows = server.begin()
            assert submitted <= rows.keys(), "an acknowledged job is gone"
            assert {job_id: rows[job_id] for job_id in ended} == ended, "a job that had ended runs again"
            for job_id in ended:
                assert started.setdefault(job_id, attempts(disk.directory, job_id)) == attempts(disk.directory, job_id)
            seen["unacknowledged and kept"] += len(rows.keys() - submitted)
            seen["in the middle"] += sum(state not in ("queued", "succeeded") for state in rows.values())
    finally:
        server.die()
        disk.unplug()
    print(f"{cuts} cuts: {len(submitted)} acknowledged jobs, {len(ended)} of them ended; {dict(seen)}")
    assert submitted


def attempts(disk: Path, job_id: str) -> int:
    """How often the job was started."""
    records = read_journal(RunDir(disk / "home" / "runs" / job_id).journal)
    return sum(record.type is RecordType.ATTEMPT_STARTED for record in records)


def test_a_whole_array_is_there_after_a_power_cut_at_its_acknowledgement(disk: Ext4, tmp_path: Path) -> None:
    """Its files are made durable all at once, before its rows."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "module.py").write_text("value = 1\n" * 1000)
    (code / "train.py").write_text("import module\n")
    base = {"script": "train.py", "code": {"path": str(code)}, "device": "cpu", "env": {"A": "b"}}
    disk.plug_in()
    try:
        with api_server(disk.directory) as server:
            answer = server.api.post("/api/v1/experiments", json={"name": "sweep", "array": "0-19", "base": base})
            disk.cut_off()
        jobs = [trial["job"] for trial in answer.json()["trials"]]
    finally:
        disk.unplug()
    disk.plug_in()
    try:
        home = Home(disk.directory / "home")
        runs = [home.run_dir(job) if home.run_dir(job).root.exists() else home.new_run(job) for job in jobs]
        contents = [[(run.code / name).read_text() for name in ("module.py", "train.py")] for run in runs]
        assert contents == [[(code / name).read_text() for name in ("module.py", "train.py")]] * 20
        assert [read_json(run.environment) for run in runs] == [
            {"A": "b", "REKINDLE_ARRAY_INDEX": str(index)} for index in range(20)
        ]
        assert [(read_json(run.spec) or {}).get("job_id") for run in runs] == jobs
        store = Store(home.database)
        assert set(jobs) <= store.recovery.known_jobs().keys()
        store.close()
    finally:
        disk.unplug()
