"""In place of each file that a job can write: links, pipes, devices, junk. No route fails, no other job notices."""

import json
import os
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from api_server import ADMIN, ApiServer, api_server
from e2e.waiting import until
from fakes.launching import fake_launchers
from rekindle.contract.files import write_json
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import RankDone, RankError, RankState, RankStatus
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.api.routes.event_routes import make_feed
from rekindle_service.scheduler.reconciler import Reconciler
from rekindle_service.store.tables import Job
from snapshot_files import write_snapshot

_SECRET = "a secret of the server"
_SPARSE = 1 << 36  # bytes
_ENDLESS = ("logs.zip", "log/file", "files.zip")  # as long as the file, by design

_STATUS = RankStatus(0, 0, 1, "host", 1, 1, "cpu:0", RankState.RUNNING, step=40, phase="train")
_RECORDS: dict[RecordType, dict[str, Any]] = {
    RecordType.KEEPER_STARTED: {"run": 1, "keeper": {"pid": 1, "start_time": 1, "boot_id": "x"}},
    RecordType.ROLLED_BACK: {"run": 1, "step": 3, "quarantined": [4]},
    RecordType.ATTEMPT_STARTED: {"attempt": 1, "run": 1, "world_size": 1, "devices": ["cpu:0"]},
    RecordType.RANKS_RUNNING: {"attempt": 1, "ranks": [{"rank": 0, "pid": 1, "start_time": 1}]},
    RecordType.SNAPSHOT_SKIPPED: {"attempt": 1, "step": 1, "reason": "r"},
    RecordType.RESUMED: {"attempt": 1, "step": 1},
    RecordType.CHECKPOINT_LOADED: {"attempt": 1, "path": "p"},
    RecordType.CHECKPOINT_TORN: {"attempt": 1, "path": "p", "moved_to": "q", "written_by": 0},
    RecordType.STOP_REQUESTED: {"attempt": 1, "ending": "drain"},
    RecordType.RANK_EXITED: {"attempt": 1, "rank": 0, "exit_code": 1, "signal": "SIGKILL", "killed": False},
    RecordType.STRAGGLER: {"attempt": 1, "rank": 0, "share": 0.5},
    RecordType.FAULT_INJECTED: {"attempt": 1, "fault": "kill", "rank": 0, "snapshot": 1},
    RecordType.RETRY_DECIDED: {"attempt": 1, "reason": "r", "next_try_at": 1.0, "delay": 1.0},
    RecordType.ATTEMPT_ENDED: {
        "attempt": 1, "outcome": {"class": "signal", "message": "m", "rank": 0, "evidence": {"a": 1}, "line": 1},
        "resumed_from_step": 1, "last_step": 2, "snapshot_step": 2, "saving_seconds": 1.0, "running_seconds": 1.0,
    },
    RecordType.JOB_ENDED: {"run": 1, "state": "failed", "reason": "r", "outcome": {"class": "oom", "message": "m"}},
}  # fmt: skip
_FIRST = (RecordType.KEEPER_STARTED, RecordType.ATTEMPT_STARTED, RecordType.RANKS_RUNNING)


def _put_link(path: Path) -> None:
    (path.parent / "secret").write_text(_SECRET)
    path.symlink_to("secret")


def _put_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(_SPARSE)


def _put_socket(path: Path) -> None:
    directory = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"/proc/self/fd/{directory}/{path.name}")  # its own name may be too long
    os.close(directory)


_KINDS: dict[str, Callable[[Path], object]] = {
    "nothing": lambda path: None,
    "link to a secret": _put_link,
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "FIFO": os.mkfifo,
    "socket": _put_socket,
    "directory": lambda path: path.mkdir(),
    "closed": lambda path: (path.write_bytes(b"{}\n"), path.chmod(0)),
    "sparse": _put_sparse,
    "NUL": lambda path: path.write_bytes(bytes(100_000) + b"\n"),
    "no UTF-8": lambda path: path.write_bytes(bytes(range(256)) * 100 + b"\n"),
    "deep": lambda path: path.write_bytes(b"[" * 200_000 + b"]" * 200_000 + b"\n"),
    "deep object": lambda path: path.write_bytes(b'{"a":' * 900 + b"1" + b"}" * 900 + b"\n"),
    "object": lambda path: path.write_bytes(b"{}\n"),
    "list": lambda path: path.write_bytes(b"[]\n"),
    "infinity": lambda path: path.write_bytes(b"1e999\n"),
}


class HostileRun:
    """A running job whose files the test writes, another job, and the loop of the server, turned by the test."""

    def __init__(self, server: ApiServer, code: Path) -> None:
        self.server, self._code = server, code
        self.other = server.submit(code, name="other")
        self._keepers: list[subprocess.Popen[bytes]] = []
        state = server.state
        launchers = fake_launchers(state.store, state.home, state.machine, self._launch)
        self.reconciler = Reconciler(state.store, state.home, state.machine, launchers)

    def _launch(self, _: Job) -> "subprocess.Popen[bytes]":
        self._keepers.append(subprocess.Popen(["sleep", "600"]))
        return self._keepers[-1]

    def new_job(self) -> tuple[str, RunDir]:
        job = self.server.submit(self._code, name="hostile")
        run_dir = self.server.run_dir(job)
        self.server.move(job, JobState.STARTING, run=1, devices=["cpu:0"])
        self.reconciler.reconcile()  # so that it has a keeper when its ranks run
        journal = Journal(run_dir.journal)
        for kind in _FIRST:
            journal.write(kind, **_RECORDS[kind])
        attempt = run_dir.attempt(1)
        rank = attempt.rank(0)
        rank.root.mkdir(parents=True)
        write_json(rank.status, _STATUS.to_json())
        rank.metrics.write_text('{"step": 1, "epoch": 0, "at": 1.0, "values": {"loss": 1.0}}\n')
        rank.log("stdout").write_text("hello\n")
        write_snapshot(run_dir.snapshots, 40, job_id=job["id"])
        self.reconciler.reconcile()
        return str(job["id"]), run_dir

    def leaves(self, run_dir: RunDir) -> list[Path]:
        attempt = run_dir.attempt(1)
        rank, snapshot = attempt.rank(0), run_dir.snapshots / f"{40:012d}"
        names = ("status", "done", "error", "collectives", "metrics", "stacks", "chaos", "files", "debug_socket")
        of_run = ("spec", "intent", "keeper_lock", "keeper_log", "control", "fence", "code_manifest", "observed",
                  "surroundings", "pace", "pins")  # fmt: skip
        return [
            *(getattr(rank, name) for name in names), rank.log("stdout"), rank.log("stderr"),
            *(getattr(attempt, name) for name in ("arguments", "agent_log", "usage", "scalars", "printed")),
            *(getattr(run_dir, name) for name in of_run), *snapshot.iterdir(),
        ]  # fmt: skip

    def check(self, job_id: str, what: str, *, endless: bool = True) -> None:
        """The loop turns, the stream has events, and every route of the job and of the other answers."""
        self.reconciler.reconcile()
        assert self.reconciler.health().stuck == {}, what
        make_feed(self.server.state, ADMIN, job=[job_id, self.other["id"]], log=[f"{job_id}:0:stdout"]).poll()
        for url in self._urls(job_id):
            if not endless and url.endswith(_ENDLESS):
                continue
            answer = self.server.api.get(url)
            assert answer.status_code < 500, f"{what}: {url}: {answer.text[:300]}"
            assert _SECRET not in answer.text, f"{what}: {url}"
            assert len(answer.content) < 10_000_000, f"{what}: {url}"
        listed = {job["id"] for job in self.server.api.get("/api/v1/jobs?limit=200").json()["items"]}
        assert {job_id, self.other["id"]} <= listed, what
        assert self.server.api.get(f"/api/v1/jobs/{self.other['id']}").json()["notice"] is None, what

    def _urls(self, job_id: str) -> Iterator[str]:
        for path, methods in self.server.app.openapi()["paths"].items():
            if "get" in methods and "{job_id}" in path:
                url = path.replace("{job_id}", job_id).replace("{rank}", "0").replace("{step}", "40")
                yield url + ("?q=x" if "search" in url else f"?other={self.other['id']}" if "diff" in url else "")
        yield from ("/api/v1/jobs", "/metrics", "/api/v1/devices", "/readyz")

    def delete(self, job_id: str) -> None:
        with self.server.state.store.writing() as session:
            session.delete(session.get(Job, job_id))

    def close(self) -> None:
        self.reconciler.close()
        for keeper in self._keepers:
            keeper.kill()
            keeper.wait()


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostileRun]:
    root = tmp_path_factory.mktemp("hostile")
    code = root / "code"
    code.mkdir()
    with api_server(root) as server:
        run = HostileRun(server, code)
        yield run
        run.close()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.chmod(0o700)
        path.rename(path.with_name(f"removed-{path.name}"))
    else:
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("kind", _KINDS)
def test_nothing_in_place_of_the_files_of_a_job_makes_a_route_fail(hostile: HostileRun, kind: str) -> None:
    job_id, run_dir = hostile.new_job()
    leaves = hostile.leaves(run_dir)
    for path in leaves:
        _remove(path)
        _KINDS[kind](path)
    hostile.check(job_id, f"all files: {kind}", endless=kind != "sparse")
    _remove(run_dir.journal)
    _KINDS[kind](run_dir.journal)
    hostile.check(job_id, f"the journal: {kind}", endless=kind != "sparse")
    hostile.delete(job_id)


@pytest.mark.parametrize("kind", ["link to a secret", "FIFO", "nothing"])
def test_nothing_in_place_of_a_directory_makes_a_route_fail(hostile: HostileRun, kind: str) -> None:
    job_id, run_dir = hostile.new_job()
    directories = [run_dir.attempt(1).rank(0).root, run_dir.attempt(1).ranks, run_dir.attempt(1).root, run_dir.attempts,
                   run_dir.snapshots / f"{40:012d}", run_dir.snapshots, run_dir.code]  # fmt: skip
    for path in directories:
        _remove(path)
        _KINDS[kind](path)
        hostile.check(job_id, f"{path.name}: {kind}")
    hostile.delete(job_id)


_VALUES = (
    "1e999", "-1e999", "NaN", "1" + "0" * 30, "-1", "-1" + "0" * 17, str(2**53 + 1), str(2**63 - 1), "1e18", "1e299",
    '"x"', '"\\ud800\\u0000"', '"' + "x" * 300_000 + '"', "{}", "[]", "null", "true", "65536", "4096",
    "[" * 240 + "1" + "]" * 240, '{"a":' * 960 + "1" + "}" * 960, "[" + "1," * 66_000 + "1]",
)  # fmt: skip
"""Of any field of a record, as they stand in JSON."""


def _fields(record: Any, prefix: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to each field, also of records within it."""
    for key, value in record.items():
        yield (*prefix, key)
        if isinstance(value, dict):
            yield from _fields(value, (*prefix, key))
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            yield from _fields(value[0], (*prefix, key, 0))


def _forged(record: dict[str, Any], value: str) -> Iterator[str]:
    """The record once for each of its fields, with ``value`` in it."""
    for *way, last in _fields(record):
        changed = json.loads(json.dumps(record))
        part = changed
        for key in way:
            part = part[key]
        part[last] = "HERE"
        yield json.dumps(changed).replace('"HERE"', value)


@pytest.mark.parametrize("value", _VALUES, ids=lambda value: value[:12])
def test_no_value_of_any_field_of_any_record_makes_a_route_fail(hostile: HostileRun, value: str) -> None:
    job_id, run_dir = hostile.new_job()
    rank = run_dir.attempt(1).rank(0)
    error = RankError(0, "E", "m", "f", 1, "t", 1, 1.0, 1.0)
    of_rank = [(rank.status, _STATUS), (rank.error, error), (rank.done, RankDone(0, drained=False, step=1, at=1.0))]
    usage = {
        "at": 1.0, "ranks": [{"rank": 0, "cpu_percent": 1.0, "rss_bytes": 1, "read_bytes": 1, "written_bytes": 1}],
        "devices": [],
    }  # fmt: skip
    metric = {"step": 1, "epoch": 0, "at": 1.0, "values": {"loss": 1.0}}
    observed = {"attempt": 1, "ended": False, "estimated_step": 1, "checkpoints": [
        {"path": "p", "kind": "torch", "bytes": 1, "written_at": 1.0, "attempt": 1, "files": []}]}  # fmt: skip
    rank.metrics.write_text("".join(line + "\n" for line in _forged(metric, value)))
    run_dir.attempt(1).usage.write_text("".join(line + "\n" for line in _forged(usage, value)))
    of_field = {path: list(_forged(record.to_json(), value)) for path, record in of_rank}
    of_field |= {run_dir.observed: list(_forged(observed, value)),
                 run_dir.intent: list(_forged({"want": "run", "run": 1, "devices": ["cpu:0"]}, value)),
                 run_dir.surroundings: list(_forged({"host": "h", "packages": {"torch": "2"}}, value)),
                 run_dir.pins: list(_forged({"steps": [1]}, value))}  # fmt: skip
    for index in range(0, max(map(len, of_field.values())), 5):
        for path, texts in of_field.items():
            path.write_text(texts[min(index, len(texts) - 1)])
        hostile.reconciler.reconcile()
    with run_dir.journal.open("a") as journal:
        for kind, fields in _RECORDS.items():
            lines = _forged({"type": kind, "at": 4.0, **fields}, value)
            journal.writelines(line + "\n" for line in islice(lines, 40))
    hostile.check(job_id, value[:30])
    hostile.delete(job_id)


def test_records_that_are_skipped_are_counted_and_named_on_the_job(hostile: HostileRun) -> None:
    job_id, run_dir = hostile.new_job()
    with run_dir.journal.open("a") as journal:
        journal.write('{"type": "resumed", "at": 1, "attempt": 1, "step": 1e999}\n' * 3)
    run_dir.attempt(1).rank(0).status.write_text("[]")

    def named() -> dict[str, str]:
        hostile.reconciler.reconcile()
        events = hostile.server.api.get(f"/api/v1/jobs/{job_id}/events").json()["items"]
        return {event["kind"]: event["reason"] for event in events if event["kind"].endswith("_skipped")}

    until(lambda: len(named()) == 2, "both files to be named")
    assert "3 records skipped" in named()["records_skipped"]
    assert "(resumed)" in named()["records_skipped"]
    assert "status.json of rank 0" in named()["file_skipped"]
    hostile.delete(job_id)


def test_a_huge_world_and_a_million_names_are_bounded(hostile: HostileRun) -> None:
    job_id, run_dir = hostile.new_job()
    with run_dir.journal.open("a") as journal:
        journal.write(json.dumps({"type": "attempt_started", "at": 1, **_RECORDS[RecordType.ATTEMPT_STARTED],
                                  "world_size": 300_000}) + "\n")  # fmt: skip
        journal.writelines(
            f'{{"type": "straggler", "at": 1, "attempt": 1, "rank": 0, "share": {number}}}\n' for number in range(5000)
        )
    for number in range(5000):
        (run_dir.attempt(1).ranks / str(number + 4096)).mkdir()
    hostile.check(job_id, "a huge world")
    assert len(hostile.server.api.get(f"/api/v1/jobs/{job_id}/ranks").json()["items"]) == 1
    assert len(hostile.server.api.get(f"/api/v1/jobs/{job_id}/events").json()["items"]) < 200
    hostile.delete(job_id)


@pytest.mark.parametrize("forged", ['{"want": "run", "run": 1e999}', '{"want": "run", "run": 999}', "[]", ""])
def test_no_forged_intent_keeps_a_cancel_from_the_keeper(hostile: HostileRun, forged: str) -> None:
    job_id, run_dir = hostile.new_job()
    run_dir.intent.write_text(forged)
    hostile.server.state.store.set_intent(job_id, JobIntent.CANCEL)
    hostile.reconciler.reconcile()
    assert json.loads(run_dir.intent.read_text())["want"] == "cancel"
    run_dir.intent.unlink()
    run_dir.intent.mkdir()
    hostile.reconciler.reconcile()
    assert json.loads(run_dir.intent.read_text())["want"] == "cancel"
    hostile.delete(job_id)


def test_the_server_writes_through_no_link_of_a_job(hostile: HostileRun, tmp_path: Path) -> None:
    job_id, run_dir = hostile.new_job()
    precious = tmp_path / "precious"
    precious.write_text("mine")
    run_dir.control.unlink(missing_ok=True)
    run_dir.control.symlink_to(precious)
    (run_dir.root / f".intent.json.{os.getpid()}.tmp").symlink_to(precious)
    run_dir.keeper_log.unlink(missing_ok=True)
    run_dir.keeper_log.symlink_to(precious)
    hostile.server.state.store.set_intent(job_id, JobIntent.CANCEL)
    hostile.check(job_id, "links")
    assert precious.read_text() == "mine"
    assert stat.S_ISREG(run_dir.intent.lstat().st_mode)
    hostile.delete(job_id)
