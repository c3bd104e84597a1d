"""Copies off the box: what is listed there is whole, whatever happens while it is sent."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from disks import tmpfs
from e2e.waiting import until
from job_examples import a_job, open_store
from rekindle.contract.files import append_line, write_json
from rekindle.contract.job import JobSpec
from rekindle.contract.locks import lock_holder
from rekindle.contract.run_dir.snapshot_dir import Manifest, SnapshotDir
from rekindle.contract.states import JobState
from rekindle_service.cli.commands.import_command import _find, download
from rekindle_service.config.home import Home
from rekindle_service.jobs.packaging.code_manifest import take_manifest
from rekindle_service.mirror import copier, mirrors, remote
from rekindle_service.mirror.copier import Copier
from rekindle_service.mirror.mirrors import Mirrors
from rekindle_service.mirror.remote import Index, MirrorError, Remote
from rekindle_service.mirror.state import MirrorState, read_state
from snapshot_files import write_snapshot

JOB = "abcdefghi1"
_SPEC = {"name": "digits", "kind": "script", "target": "train.py", "python": "/usr/bin/python3", "mirror_keep": 2}


class Box:
    """A home with one job, whose files the test writes, and the place off the box."""

    def __init__(self, root: Path, mirror: str | None = None, **options: object) -> None:
        self.home = Home(root / "home")
        self.home.create()
        self.place = root / "off"
        self.place.mkdir()
        self.url = mirror or str(self.place)
        self.run_dir = self.home.run_dir(JOB)
        self.run_dir.root.mkdir()
        (self.run_dir.code / "out").mkdir(parents=True)
        (self.run_dir.code / "train.py").write_text("print()")
        write_json(self.run_dir.code_manifest, take_manifest(self.run_dir.code).to_json())
        append_line(self.run_dir.journal, {"type": "keeper_started", "at": 1.0, "run": 1, "pid": 1})
        self.spec = JobSpec.from_json({**_SPEC, "mirror": self.url, **options})

    def snapshot(self, step: int, model: bytes = b"weights") -> Path:
        return write_snapshot(self.run_dir.snapshots, step, job_id=JOB, model=model)

    def end(self) -> None:
        append_line(
            self.run_dir.journal, {"type": "job_ended", "at": 1.0, "run": 1, "state": "succeeded", "reason": "r"}
        )

    def copy(self) -> None:
        """Copy as after the end of a run."""
        Copier(self.home, JOB, 7, self.spec).run(os.getpid(), lambda: True)

    def start(self, server: int | None = None) -> "subprocess.Popen[bytes]":
        task = {"home": str(self.home.root), "server": server or os.getpid(), "job_id": JOB, "number": 7, "over": False}
        command = [sys.executable, "-m", "rekindle_service.mirror.copier"]
        process = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(json.dumps({**task, "spec": self.spec.to_json()}).encode())
        return process

    @property
    def state(self) -> MirrorState | None:
        return read_state(self.home, JOB)

    def remote(self) -> Remote:
        return Remote(self.url, JOB)

    def listed(self) -> list[int]:
        """The steps that the copies have, each of which is checked to its last byte."""
        found = self.remote()
        index = found.read_index()
        for each in [] if index is None else index.snapshots:
            for name, record in Manifest.parse(each.manifest.encode()).files.items():
                data = b"".join(map(found.get, each.files[name].parts))
                assert hashlib.sha256(data).hexdigest() == record.sha256, (each.step, name)
        return [] if index is None else [each.step for each in index.snapshots]


@pytest.fixture(autouse=True)
def _no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The alarm of this process is that of pytest-timeout."""
    monkeypatch.setattr(copier, "limited_time", nullcontext)


@pytest.fixture(params=["path", "memory"])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Box:
    return Box(tmp_path, f"memory://{tmp_path.name}" if request.param == "memory" else None, mirror_files=["out/*.pt"])


def test_the_copies_have_code_journal_and_files_and_what_is_there_is_not_sent_again(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.snapshot(10, os.urandom(1 << 20))
    (box.run_dir.code / "out/last.pt").write_bytes(b"own")
    (box.run_dir.code / "out/note.txt").write_bytes(b"other")
    box.end()
    box.copy()
    assert box.listed() == [10]
    assert box.state is not None
    assert (box.state.steps, box.state.journal, box.state.notice) == ([10], box.run_dir.journal.stat().st_size, None)
    index = box.remote().read_index()
    assert index is not None
    assert set(index.files) == {"code.tar.gz", "journal.jsonl", "code/out/last.pt"}
    assert index.spec["name"] == "digits"
    sent: list[int] = []
    monkeypatch.setattr(Remote, "put", lambda self, digest, data, listed: sent.append(len(data)))
    box.copy()
    assert sent == []


def test_the_latest_snapshots_are_kept_and_those_of_a_training_that_was_rolled_back_go_first(box: Box) -> None:
    for step in (10, 20, 30):
        box.snapshot(step, f"weights of {step}".encode())
        box.copy()
    assert box.listed() == [30, 20]
    for step in (20, 30):
        directory = SnapshotDir(box.run_dir.snapshots).path(step)
        directory.rename(directory.with_name(f"quarantine-{directory.name}"))
    box.copy()
    assert box.listed()[0] == 10, "the training continues from there"
    box.snapshot(15)
    box.copy()
    assert box.listed() == [15, 10]
    assert len(box.remote().sizes()) == len(box.remote().read_index().parts()), "nothing else takes space"


def test_a_snapshot_that_is_damaged_here_is_not_copied_and_the_one_before_is(box: Box) -> None:
    box.snapshot(10)
    (box.snapshot(20) / "model.pt").write_bytes(b"wEights")
    box.copy()
    assert box.listed() == [10]


def test_copies_that_lost_a_part_are_no_longer_listed_and_are_sent_again(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.snapshot(10)
    box.copy()
    part = box.place / JOB / "parts" / hashlib.sha256(b"weights").hexdigest()
    for damage in (part.unlink, lambda: part.write_bytes(b"weight")):
        damage()
        assert box.listed() == []
        box.copy()
        assert box.listed() == [10]


def test_a_part_of_another_content_left_by_a_torn_write_is_replaced(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.snapshot(10)
    parts = box.place / JOB / "parts"
    parts.mkdir(parents=True)
    (parts / hashlib.sha256(b"weights").hexdigest()).write_bytes(b"wEights")
    (parts / ".tmp").write_bytes(b"left over")
    box.copy()
    assert box.listed() == [10]
    assert not (parts / ".tmp").exists()


def test_a_torn_or_changed_index_counts_as_none_and_the_one_before_is_used(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.snapshot(10)
    box.copy()
    [index] = (box.place / JOB).glob("index-*")
    data = index.read_bytes()
    later = index.with_name("index-90")
    for torn in (b"", data[:-1], data[: len(data) // 2], data.replace(b'"step": 10', b'"step": 11'), b"[]", b"{}"):
        later.write_bytes(torn)
        assert box.listed() == [10]
    box.snapshot(20)
    box.copy()
    assert box.listed() == [20, 10]
    assert [path.name for path in (box.place / JOB).glob("index-*")] == ["index-91"]


@pytest.mark.parametrize(
    ("size", "parts"), [(3, []), (3, ["../../token"]), (3, ["a" * 64] * 2), (0, ["a" * 64]), (3, ["A" * 64])]
)
def test_an_index_with_impossible_parts_counts_as_none(size: int, parts: list[str]) -> None:
    fields = {"format": 1, "job_id": JOB, "number": 7, "spec": {}, "files": {"code/a": {"bytes": size, "parts": parts}}}
    data = json.dumps({**fields, "sha256": remote._checksum(fields)}).encode()
    assert Index.parse(data) is None
    sound = {**fields, "files": {}}
    assert Index.parse(json.dumps({**sound, "sha256": remote._checksum(sound)}).encode()) is not None


@pytest.mark.parametrize("name", ["code/../../token", "/etc/passwd", "code/a\0b"])
def test_a_name_that_leads_out_of_the_job_is_not_imported(box: Box, tmp_path: Path, name: str) -> None:
    box.copy()
    found, scratch = box.remote(), tmp_path / "scratch"
    scratch.mkdir()
    index = found.read_index()
    assert index is not None
    refused = pytest.raises(MirrorError, match="leads out") if name.startswith("code/") else nullcontext()
    with refused:
        download(found, replace(index, files={name: index.files["journal.jsonl"]}), None, scratch)
    assert not list(scratch.rglob("*"))


def test_the_index_of_a_job_is_fetched_once_to_import_it(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    box.copy()
    read, reads = Remote.read_index, list[Remote]()
    monkeypatch.setattr(Remote, "read_index", lambda self: reads.append(self) or read(self))
    assert [index.job_id for _, index in _find(f"{box.url}/{JOB}")] == [JOB]
    assert len(reads) == 1


def test_an_error_is_shown_since_when_nothing_is_mirrored_and_goes_once_it_works_again(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.snapshot(10)
    box.end()
    box.place.rmdir()
    assert box.start().wait(60) == 1
    first = box.state
    assert first is not None
    assert first.notice is not None
    assert f"{box.place} is no directory: make it first" in first.notice
    assert box.start().wait(60) == 1
    assert box.state == first, "since the first failure"
    box.place.mkdir()
    assert box.start().wait(60) == 0
    assert box.state is not None
    assert (box.state.steps, box.state.notice) == ([10], None)


def test_a_copier_whose_server_died_before_it_began_ends_where_no_keeper_runs(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.snapshot(10)
    assert box.start(server=1 << 22).wait(60) == 0, "a pid that none has"
    assert box.listed() == [10]


@pytest.mark.long
def test_a_full_disk_is_named_and_left_overs_make_room_while_what_is_copied_stays(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.spec = replace(box.spec, mirror_keep=1)
    with tmpfs(box.place, "60m"):
        box.snapshot(10, os.urandom(20_000_000))
        box.end()
        assert box.start().wait(60) == 0
        left_over = box.place / JOB / "parts" / ("0" * 64)
        left_over.write_bytes(bytes(30_000_000))
        box.snapshot(20, os.urandom(30_000_000))
        assert box.start().wait(60) == 1
        assert box.state is not None
        assert "No space left on device" in str(box.state.notice)
        assert box.listed() == [10]
        assert not left_over.exists()
        assert box.start().wait(60) == 0
        assert box.listed() == [20]


@pytest.mark.long
def test_whenever_the_copier_is_killed_what_is_listed_is_whole_and_in_the_end_all_is_there(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    box = Box(tmp_path)
    seed = random.randrange(1 << 32)
    chance = random.Random(seed)
    lock = box.home.mirror_lock(JOB)
    for number in range(request.config.getoption("--soak") or 5):
        box.snapshot(number + 1, chance.randbytes(chance.randrange(40 << 20)))
        process = box.start()
        until(lambda: lock_holder(lock) == process.pid, "the copier has begun")  # noqa: B023
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(chance.random() * 0.8)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert set(box.listed()) <= set(range(1, number + 2)), seed
    box.end()
    assert box.start().wait(60) == 0
    assert box.listed()[0] == number + 1, seed


def test_a_server_that_finds_the_copier_of_the_one_before_starts_none_until_that_has_ended(tmp_path: Path) -> None:
    box = Box(tmp_path)
    store = open_store(box.home.root)
    store.add_job(a_job(id=JOB, **{**_SPEC, "mirror": box.url}, state=JobState.RUNNING))
    before, after = Mirrors(store, box.home), Mirrors(store, box.home)
    try:
        before.observe()
        until(lambda: lock_holder(box.home.mirror_lock(JOB)), "it copies")
        after.observe()
        assert after._copiers[JOB].process is None
        before._copiers[JOB].process.kill()
        until(lambda: after.observe() or after._copiers[JOB].process, "another one is started")
    finally:
        store.transition(JOB, JobState.FAILED, expected={JobState.RUNNING}, reason="test")
        until(lambda: after.observe() or not after._copiers, "it has ended")
        before.close()
        after.close()
        store.close()


def test_the_server_starts_copiers_and_starts_them_again_until_all_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirrors, "exponential_backoff", lambda *_: 0.0)
    box = Box(tmp_path)
    store = open_store(box.home.root)
    store.add_job(a_job(id=JOB, **{**_SPEC, "mirror": box.url}, state=JobState.RUNNING))
    service = Mirrors(store, box.home)
    away = box.place.with_name("away")
    try:
        for outage in (1, 2):
            box.place.rename(away)
            box.snapshot(10 * outage)
            until(lambda: service.observe() or (box.state and box.state.error), "it fails")
            until(lambda: service.observe() or store.job(JOB).notice, "the job tells")
            away.rename(box.place)
            until(lambda: service.observe() or 10 * outage in box.state.steps, "it copies")  # noqa: B023
            until(lambda: service.observe() or store.job(JOB).notice is None, "and tells no more")
            assert [each.kind for each in store.events(JOB)].count("mirror_failed") == outage
        process = service._copiers[JOB].process
        assert process is not None
        assert "nice 0" not in Path(f"/proc/{process.pid}/autogroup").read_text(), "it gives way to the training"
        store.transition(JOB, JobState.FAILED, expected={JobState.RUNNING}, reason="its keeper cannot be started")
        until(lambda: service.observe() or not service._copiers, "it has ended, without a record of that")
        assert box.state is not None
        assert box.state.reaches(box.run_dir.journal.stat().st_size)
    finally:
        service.close()
        store.close()
    again = Mirrors(store, box.home)
    again._store = open_store(box.home.root)
    again.observe()
    assert not again._copiers, "a later server has nothing to do"
    again._store.close()
