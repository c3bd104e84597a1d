import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from job_records import record_attempt, record_keeper, record_status
from rekindle.contract.files import write_json
from rekindle.contract.run_dir.control_messages import ControlMessage, MessageType, parse_message
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.run_dir.paths import RankDir
from rekindle.contract.run_dir.rank_records import RankDone, RankError
from rekindle.contract.run_dir.snapshot_dir import SnapshotScore
from rekindle.contract.states import JobState
from snapshot_files import write_snapshot


class Played:
    """A running job with two ranks whose keeper and ranks the test plays; both ranks are this very process."""

    def __init__(self, server: ApiServer, code: Path) -> None:
        self.server = server
        self.job = server.submit(code, ranks=2)
        self.url = f"/api/v1/jobs/{self.job['id']}"
        self.run_dir = server.run_dir(self.job)
        self.journal = Journal(self.run_dir.journal)
        record_keeper(self.run_dir)
        self.attempt(1)
        server.move(self.job, JobState.STARTING, JobState.RUNNING, attempt=1)

    def attempt(self, number: int) -> None:
        record_attempt(self.run_dir, number, world_size=2)

    def rank_dir(self, rank: int, attempt: int = 1) -> RankDir:
        return self.run_dir.attempt(attempt).rank(rank)

    def status(self, rank: int, attempt: int = 1, **fields: Any) -> None:
        record_status(self.rank_dir(rank, attempt), rank, **{"updated_at": time.time(), **fields})

    def log(self, rank: int, data: bytes, stream: str = "stdout", attempt: int = 1) -> Path:
        path = self.rank_dir(rank, attempt).log(stream)
        path.write_bytes(data)
        return path

    def get(self, path: str, **query: Any) -> Any:
        return self.server.api.get(f"{self.url}/{path}", params=query)

    def ranks(self, **query: Any) -> list[dict[str, Any]]:
        self.server.read_journal(self.job)
        answer = self.get("ranks", **query)
        assert answer.status_code == 200, answer.text
        return answer.json()["items"]

    def read(self, rank: int = 0, headers: dict[str, str] | None = None, **query: Any) -> Any:
        return self.server.api.get(f"{self.url}/ranks/{rank}/log", params=query, headers=headers)


@pytest.fixture
def played(shared_server: ApiServer, shared_code: Path) -> Played:
    return Played(shared_server, shared_code)


# --- ranks


def test_a_job_without_an_attempt_has_no_ranks(shared_server: ApiServer, shared_code: Path) -> None:
    ranks = f"/api/v1/jobs/{shared_server.submit(shared_code)['id']}/ranks"
    assert shared_server.api.get(ranks).json() == {"items": [], "next": None}
    assert "no attempt yet" in shared_server.api.get(f"{ranks}/0/log").json()["detail"]


def test_ranks_show_what_their_processes_write(played: Played) -> None:
    played.status(0, step=12, steps=100, epoch=1, steps_per_second=4.5, phase="train", notice="slow disk")
    played.log(0, b"epoch 1\n 12%|#  |\r 13%|# |")
    zero, one = played.ranks()
    expected = {
        "rank": 0,
        "local_rank": 0,
        "host": "box",
        "pid": os.getpid(),
        "state": "running",
        "exit_code": None,
        "signal": None,
        "step": 12,
        "steps": 100,
        "epoch": 1,
        "steps_per_second": 4.5,
        "phase": "train",
        "notice": "slow disk",
        "device": "cpu:0",
        "last_line": "13%|# |",
    }
    assert {name: zero[name] for name in expected} == expected
    assert 0 <= zero["heartbeat_age"] < 60
    assert (one["state"], one["step"], one["device"]) == ("starting", None, "cpu:1")


def test_a_dead_process_is_never_shown_as_running(played: Played) -> None:
    played.status(0, start_time=1)
    played.status(1)
    assert [rank["state"] for rank in played.ranks()] == ["failed", "running"]


def test_the_journal_records_how_a_rank_ended_and_no_rank_of_an_ended_attempt_runs(played: Played) -> None:
    for rank in (0, 1):
        played.status(rank)
    played.journal.write(RecordType.RANK_EXITED, attempt=1, rank=1, exit_code=None, signal="SIGTERM", killed=True)
    assert [(rank["state"], rank["signal"]) for rank in played.ranks()] == [("running", None), ("killed", "SIGTERM")]
    played.journal.write(RecordType.ATTEMPT_ENDED, attempt=1, outcome=None)
    zero, _ = played.ranks()
    assert (zero["state"], zero["steps_per_second"], zero["heartbeat_age"]) == ("failed", None, None)


def test_a_rank_that_was_killed_by_a_signal_has_failed(played: Played) -> None:
    played.status(0)
    played.journal.write(RecordType.RANK_EXITED, attempt=1, rank=0, exit_code=None, signal="SIGKILL", killed=False)
    zero, _ = played.ranks()
    assert (zero["state"], zero["signal"]) == ("failed", "SIGKILL")


def test_a_done_marker_beats_the_exit_code_and_an_error_gives_it(played: Played) -> None:
    done = RankDone(rank=0, drained=False, step=5, at=1.0)
    write_json(played.rank_dir(0).done, done.to_json())
    error = RankError(1, "ValueError", "no", "train.py", 3, "Traceback", 7, 1.0, 1.0)
    write_json(played.rank_dir(1).error, error.to_json())
    played.journal.write(RecordType.RANK_EXITED, attempt=1, rank=0, exit_code=1, signal=None, killed=True)
    assert [(rank["state"], rank["exit_code"]) for rank in played.ranks()] == [("done", 1), ("failed", 7)]


def test_older_attempts_are_still_shown(played: Played) -> None:
    played.status(0, step=3)
    played.attempt(2)
    played.status(0, attempt=2, step=1)
    assert played.ranks()[0]["step"] == 1
    assert played.ranks(attempt=1)[0]["step"] == 3
    assert "it has attempts 1–2" in played.get("ranks", attempt=3).json()["detail"]  # noqa: RUF001 as shown


def test_nonsense_in_a_status_file_is_no_fault(played: Played) -> None:
    unknown_state = json.dumps({"rank": 0, "local_rank": 0, "state": "dancing"}).encode()
    nested, long = b'{"rank": ' + b"[" * 5000, b"x" * (2 << 20)
    for status in (b"", b"{", b"[]", b"\xff", b'{"rank": "no"}', nested, long, unknown_state):
        played.rank_dir(0).status.write_bytes(status)
        assert played.ranks()[0]["state"] == "starting", status[:20]


def test_numbers_that_json_does_not_know_are_null(played: Played) -> None:
    played.status(0)
    path = played.rank_dir(0).status
    path.write_bytes(path.read_bytes().replace(b'"steps_per_second": null', b'"steps_per_second": NaN, "step": 1'))
    assert played.ranks()[0]["steps_per_second"] is None


def test_links_fifos_and_foreign_names_in_the_run_directory_are_ignored(played: Played, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("root:x:0\n")
    os.mkfifo(played.rank_dir(0).status)
    played.rank_dir(0).log("stdout").symlink_to(secret)
    os.mkfifo(played.rank_dir(1).log("stdout"))
    for name in ("-1", "1e3", "\u0663", "9" * 40, "x"):
        (played.run_dir.attempt(1).ranks / name).mkdir()
    ranks = played.ranks()
    assert [(rank["rank"], rank["last_line"]) for rank in ranks] == [(0, None), (1, None)]
    assert played.read(0).text == ""
    assert played.read(1).text == ""


# --- logs


def test_a_log_is_read_in_chunks_by_byte_offset(played: Played) -> None:
    played.log(0, "héllo wörld ✓\n".encode() * 50)
    text, offset = "", 0
    while True:
        answer = played.read(offset=offset, limit=7)
        assert answer.headers["content-type"] == "text/plain; charset=utf-8"
        assert int(answer.headers["X-Offset"]) == offset
        offset = int(answer.headers["X-Next-Offset"])
        if not answer.content:
            break
        text += answer.text
    assert text == "héllo wörld ✓\n" * 50


def test_the_tail_is_the_last_lines(played: Played) -> None:
    played.log(0, b"".join(b"line %d\n" % index for index in range(10_000)))
    answer = played.read(tail=2)
    assert answer.text == "line 9998\nline 9999\n"
    assert int(answer.headers["X-Next-Offset"]) == int(answer.headers["X-Offset"]) + len(answer.content)
    assert played.read(tail=0).text == ""


def test_the_other_stream_and_older_attempts_have_their_own_logs(played: Played) -> None:
    played.log(0, b"out 1")
    played.log(0, b"err 1", stream="stderr")
    played.attempt(2)
    played.log(0, b"out 2", attempt=2)
    assert played.read().text == "out 2"
    assert played.read(attempt=1).text == "out 1"
    assert played.read(attempt=1, stream="stderr").text == "err 1"
    assert played.read(1).text == ""  # launched, without output so far


def test_a_range_brings_raw_bytes(played: Played) -> None:
    data = bytes(range(256)) * 1000
    played.log(0, data)
    answer = played.read(headers={"Range": "bytes=100-299999"})
    assert answer.status_code == 206
    assert answer.content == data[100:]
    assert answer.headers["Content-Range"] == f"bytes 100-{len(data) - 1}/{len(data)}"
    assert played.read(headers={"Range": "bytes=-5"}).content == data[-5:]
    assert played.read(headers={"Range": "bytes=1-2,4-5"}).status_code == 200
    assert played.read(headers={"Range": "nonsense"}).status_code == 200
    assert played.read(offset=100, limit=300_000, raw=True).content == data[100:]
    assert played.read(tail=1, raw=True).content == data[-245:]


def test_what_a_log_does_not_have_is_a_problem(played: Played) -> None:
    played.log(0, b"12345")
    assert played.read(offset=5).status_code == 200
    for beyond_end in (played.read(offset=6), played.read(headers={"Range": "bytes=5-"})):
        assert (beyond_end.status_code, beyond_end.headers["Content-Range"]) == (416, "bytes */5")
    for status, query in (
        (422, {"offset": -1}),
        (422, {"offset": 10**30}),
        (422, {"offset": "x"}),
        (422, {"limit": 0}),
        (422, {"limit": (1 << 20) + 1}),
        (422, {"tail": -1}),
        (422, {"tail": 1, "offset": 1}),
        (422, {"stream": "stdin"}),
        (422, {"stream": "../../status.json"}),
        (404, {"attempt": 9}),
        (422, {"attempt": -1}),
    ):
        answer = played.read(**query)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), query


def test_an_unknown_rank_is_rejected_with_the_known_ones(played: Played) -> None:
    answer = played.read(7)
    assert answer.status_code == 404
    assert "it has ranks 0–1" in answer.json()["detail"]  # noqa: RUF001 as shown
    assert {played.get(f"ranks/{rank}/log").status_code for rank in ("x", "9" * 5000)} == {422}


def test_a_huge_log_of_one_line_is_read_without_holding_it(played: Played) -> None:
    import tracemalloc

    path = played.log(0, b"")
    with path.open("wb") as file:
        for part in range(200):  # a file with more holes than any keeper makes is read as it is
            file.seek(part << 12 + 1)
            file.write(b"x")
        file.truncate(1 << 30)
    tracemalloc.start()
    try:
        assert len(played.read(tail=5).content) == 64 * 1024
        assert len(played.read(offset=1 << 29, limit=1 << 20).content) == 1 << 20
        assert played.ranks()[0]["last_line"] is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 32 << 20


# --- stacks


def test_a_living_rank_leaves_its_stack_through_its_keeper(played: Played) -> None:
    played.status(0)
    stacks = played.rank_dir(0).stacks
    stacks.write_text("an older stack\n")
    os.mkfifo(played.run_dir.control)
    fifo = os.open(played.run_dir.control, os.O_RDWR)

    def keeper() -> None:
        assert parse_message(os.read(fifo, 4096)) == ControlMessage(MessageType.STACK, attempt=1, rank=0)
        with stacks.open("a") as file:
            file.write("Thread 0x1 (most recent call first):\n")
            file.flush()
            file.write('  File "train.py", line 3 in step\n')

    thread = threading.Thread(target=keeper)
    thread.start()
    answer = played.server.api.post(f"{played.url}/ranks/0/stack")
    thread.join()
    os.close(fifo)
    assert answer.json() == {
        "attempt": 1,
        "rank": 0,
        "stack": 'Thread 0x1 (most recent call first):\n  File "train.py", line 3 in step\n',
    }


def test_a_rank_that_does_not_run_has_no_stack(played: Played) -> None:
    played.status(0, start_time=1)
    for rank in (0, 1):  # dead; not as far as its script
        answer = played.server.api.post(f"{played.url}/ranks/{rank}/stack")
        assert (answer.status_code, answer.json()["type"]) == (409, "/problems/no-stack")


# --- metrics and snapshots


def test_metrics_come_by_attempt_and_name_thinned_with_the_last_point_kept(played: Played) -> None:
    points = ({"step": step, "epoch": 0, "at": 1.0, "values": {"loss": step / 2, "lr": 0.1}} for step in range(500))
    lines = list(map(json.dumps, points))
    played.rank_dir(0).metrics.write_text("\n".join(lines) + "\n")
    played.attempt(2)
    played.rank_dir(0, 2).metrics.write_text(lines[0] + "\n")
    items = played.get("metrics", name="loss", max_points=50).json()["items"]
    assert [(item["attempt"], item["name"]) for item in items] == [(1, "loss"), (2, "loss")]
    assert len(items[0]["points"]) <= 50
    assert items[0]["points"][-1] == [499, 0, 1.0, 249.5]
    every = played.get("metrics", attempt=1).json()["items"]
    assert [(item["name"], len(item["points"])) for item in every] == [("loss", 500), ("lr", 500)]


def test_snapshots_are_listed_from_their_manifests(played: Played) -> None:
    snapshots = played.run_dir.snapshots
    write_snapshot(snapshots, 40, epoch=2, world_size=2, created_at=1_700_000_000.5)
    (write_snapshot(snapshots, 50) / "model.pt").write_bytes(b"half")
    write_snapshot(snapshots, 60, created_at=1e200)
    (write_snapshot(snapshots, 70) / "manifest.json").write_text('{"format": 1}')
    manifest = write_snapshot(snapshots, 80) / "manifest.json"
    manifest.write_bytes(manifest.read_bytes().replace(b"model.pt", b"../../spec.json"))
    write_snapshot(snapshots, 90).rename(snapshots / ".tmp-x.1-000000000090")
    found = played.get("snapshots").json()
    items = found["items"]
    assert found["policy"] is None
    assert [(item["step"], item["verified"]) for item in items] == [(60, True), (50, False), (40, True)]
    assert items[0]["created_at"] is None
    assert items[2] == {
        "step": 40,
        "epoch": 2,
        "bytes": 13,
        "verified": True,
        "world_size": 2,
        "created_at": "2023-11-14T22:13:20.500000Z",
        "score": None,
        "best": False,
        "pinned": False,
        "mirrored": None,  # without --mirror
    }


def test_the_best_snapshot_is_marked_and_the_policy_shown(played: Played) -> None:
    for step, value in ((10, 0.5), (20, 0.25), (50, 0.75)):
        write_snapshot(played.run_dir.snapshots, step, score=SnapshotScore("-loss", value))
    write_snapshot(played.run_dir.snapshots, 40)
    played.status(0, snapshot_policy="every 42 steps (auto: …)")
    found = played.get("snapshots").json()
    scores = [(item["step"], item["score"], item["best"]) for item in found["items"]]
    assert scores == [(50, 0.75, False), (40, None, False), (20, 0.25, True), (10, 0.5, False)]
    assert found["policy"] == "every 42 steps (auto: …)"


def test_a_journal_that_a_job_has_made_a_fifo_of_blocks_nobody(played: Played) -> None:
    played.run_dir.journal.unlink()
    os.mkfifo(played.run_dir.journal)
    played.status(0)
    assert [rank["state"] for rank in played.ranks()] == ["running", "starting"]
