import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

import own_loop
from api_server import ADMIN, TOKEN, ApiServer
from cli_process import rekindle
from job_records import record_attempt
from rekindle.contract.files import append_line
from rekindle.contract.states import JobState
from rekindle_service.api.problems import ApiError
from rekindle_service.api.routes.event_routes import Feed, make_feed


def polled(feed: Feed) -> list[tuple[str, Any]]:
    """Names and data of the events of a poll, as the listener gets them."""
    return [(event.event or "", json.loads(event.raw_data or "")) for event in feed.poll()]


@pytest.fixture
def job(shared_server: ApiServer, shared_code: Path) -> dict[str, Any]:
    job = shared_server.submit(shared_code)
    shared_server.move(job, JobState.STARTING, JobState.RUNNING)
    return job


Attempt = Callable[[int], Path]
Follow = Callable[..., Feed]


@pytest.fixture
def attempt(shared_server: ApiServer, job: dict[str, Any]) -> Attempt:
    """Start an attempt with this number; the result is the directory of its rank."""
    return lambda number: record_attempt(shared_server.run_dir(job), number).rank(0).root


@pytest.fixture
def follow(shared_server: ApiServer, job: dict[str, Any]) -> Follow:
    return lambda *logs: make_feed(shared_server.state, ADMIN, job=[job["id"]], log=list(logs))


def point(step: int) -> dict[str, Any]:
    return {"step": step, "epoch": 0, "at": 1.0, "values": {"loss": 0.5}}


def test_every_change_of_a_row_is_sent_once_with_its_version(server: ApiServer, code: Path) -> None:
    feed = make_feed(server.state, ADMIN)
    assert polled(feed) == []
    job = server.submit(code)
    server.move(job, JobState.STARTING)
    ((name, data),) = polled(feed)
    assert (name, data["id"], data["state"]) == ("job", job["id"], "starting")
    assert polled(feed) == []
    server.move(job, JobState.CANCELLED)
    server.state.store.delete_job(job["id"])
    assert polled(feed) == [("deleted", {"id": job["id"]})]


def test_a_listener_may_leave_while_events_wait_for_it(
    server: ApiServer, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(6):
        server.submit(code)
    events_wait = anyio.Event()
    asked = iter([{"type": "http.request"}])
    poll = Feed.poll

    def one_by_one(feed: Feed) -> Iterator[Any]:
        for number, event in enumerate(poll(feed)):
            if number == 3:  # those before it fill the pipes
                events_wait.set()
            yield event

    monkeypatch.setattr(Feed, "poll", one_by_one)

    async def receive() -> dict[str, Any]:
        for message in asked:
            return message
        await events_wait.wait()
        await anyio.wait_all_tasks_blocked()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        if message.get("body"):
            await anyio.sleep_forever()

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/api/v1/events",
        "query_string": b"last_event_id=0",
        "headers": [(b"host", b"127.0.0.1"), (b"authorization", f"Bearer {TOKEN}".encode())],
    }
    own_loop.run(server.app, scope, receive, send)


def test_a_listener_that_reconnects_gets_what_it_has_missed(server: ApiServer, code: Path) -> None:
    jobs = [server.submit(code) for _ in range(3)]
    (event, *_) = make_feed(server.state, ADMIN, last_event_id=0).poll()
    assert event.id == str(jobs[0]["version"])
    by_query = polled(make_feed(server.state, ADMIN, last_event_id=jobs[0]["version"]))
    by_header = polled(make_feed(server.state, ADMIN, last_event_id_header=str(jobs[0]["version"])))
    assert [data["id"] for _, data in by_query] == [job["id"] for job in jobs[1:]]
    assert by_header == by_query


def test_a_strange_last_event_id_begins_now(server: ApiServer, code: Path) -> None:
    server.submit(code)
    for header in ("", "x", "-1", "9" * 400, "\u0663"):
        assert polled(make_feed(server.state, ADMIN, last_event_id_header=header)) == [], header


def test_an_id_from_before_the_database_was_lost_hides_no_change(server: ApiServer, code: Path) -> None:
    feed = make_feed(server.state, ADMIN, last_event_id=1_000_000)
    server.submit(code)
    assert [name for name, _ in polled(feed)] == ["job"]


def test_a_followed_job_sends_its_ranks_metrics_and_log(job: dict[str, Any], attempt: Attempt, follow: Follow) -> None:
    root = attempt(1)
    (root / "stdout.log").write_text("before\n")
    append_line(root / "metrics.jsonl", point(1))
    feed = follow("0:stdout")
    first = dict(polled(feed))
    assert first["ranks"]["items"][0]["state"] == "starting"
    where = {"job": job["id"], "attempt": 1, "rank": 0, "stream": "stdout"}
    assert first["log"] == {**where, "offset": 0, "next_offset": 7, "text": "before\n"}
    assert polled(feed) == []
    append_line(root / "metrics.jsonl", point(2))
    with (root / "stdout.log").open("a") as log:
        log.write("✓ after")
    later = dict(polled(feed))
    assert later["metrics"]["points"][-1] == point(2)
    assert (later["log"]["offset"], later["log"]["text"]) == (7, "✓ after")


def test_the_next_attempt_is_followed_from_its_beginning(job: dict[str, Any], attempt: Attempt, follow: Follow) -> None:
    (attempt(1) / "stderr.log").write_text("x" * 100_000)
    feed = follow(f"{job['id']}:0:stderr")
    assert len(dict(polled(feed))["log"]["text"]) == 16 * 1024
    second = attempt(2)
    (second / "stderr.log").write_text("again")
    append_line(second / "metrics.jsonl", point(5))
    later = dict(polled(feed))
    assert (later["log"]["attempt"], later["log"]["offset"], later["log"]["text"]) == (2, 0, "again")
    end = (second / "metrics.jsonl").stat().st_size
    position = {"file": "metrics.jsonl", "offset": 0, "next_offset": end}
    assert later["metrics"] == {"job": job["id"], "attempt": 2, **position, "points": [point(5)]}


def test_the_end_of_each_failed_attempt_is_sent_before_the_next_one(attempt: Attempt, follow: Follow) -> None:
    first = attempt(1)
    (first / "stdout.log").write_text("")
    feed = follow("0:stdout")
    polled(feed)
    (first / "stdout.log").write_text("x" * 70_000 + "Traceback")
    append_line(first / "metrics.jsonl", point(1))
    second = attempt(2)
    (second / "stdout.log").write_text("died, too")
    append_line(second / "metrics.jsonl", point(2))
    attempt(3)
    (attempt(4) / "stdout.log").write_text("again")
    polls = [dict(polled(feed)) for _ in range(5)]
    pieces = [poll["log"] for poll in polls if "log" in poll]
    assert [(piece["attempt"], piece["text"][-9:]) for piece in pieces] == [
        (1, "x" * 9),
        (1, "Traceback"),
        (2, "died, too"),
        (4, "again"),
    ]
    points = [(poll["metrics"]["attempt"], poll["metrics"]["points"]) for poll in polls if "metrics" in poll]
    assert points == [(1, [point(1)]), (2, [point(2)])]


def test_points_that_a_new_listener_did_not_get_are_known_by_their_offsets(attempt: Attempt, follow: Follow) -> None:
    metrics = attempt(1) / "metrics.jsonl"
    append_line(metrics, point(1))
    feed = follow()
    received = dict(polled(feed))["metrics"]["next_offset"]
    append_line(metrics, point(2))
    following = dict(polled(feed))["metrics"]
    assert following["offset"] == received
    for step in (3, 4, 5):
        append_line(metrics, point(step))
    another = dict(polled(follow()))["metrics"]
    assert [each["step"] for each in another["points"]] == [5]
    assert another["offset"] > following["next_offset"]


def test_a_flood_of_output_comes_in_bounded_chunks_without_gap(attempt: Attempt, follow: Follow) -> None:
    log = attempt(1) / "stdout.log"
    log.write_bytes(b"")
    feed = follow("0:stdout")
    polled(feed)
    log.write_bytes(b"\xff" * 300_000)
    offset = 0
    while offset < 300_000:
        piece = dict(polled(feed))["log"]
        assert piece["offset"] == offset
        assert piece["next_offset"] - offset <= 64 * 1024
        offset = piece["next_offset"]


def test_a_log_of_no_followed_job_is_rejected(follow: Follow) -> None:
    for log in ("0", "0:stdin", "x:stdout", "abcdefghij:0:stdout", "0:stdout:", "-1:stdout", "\0"):
        with pytest.raises(ApiError) as caught:
            follow(log)
        assert caught.value.status == 422


def test_an_unknown_job_is_rejected_before_the_stream_begins(shared_server: ApiServer) -> None:
    for query, status in (("job=abcdefghij", 404), ("log=0:stdout", 422), ("last_event_id=x", 422)):
        assert shared_server.api.get(f"/api/v1/events?{query}").status_code == status


# --- the real server


class RunningServer:
    """``rekindle serve`` in a process of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        environment = {**os.environ, "REKINDLE_HOME": str(home), "REKINDLE_CPU_SLOTS": "2"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rekindle_service", "serve", "--port", "0"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.greeting = [self.process.stdout.readline() for _ in range(3)]
        announced = json.loads((home / "server.json").read_text())
        assert announced["pid"] == self.process.pid
        self.url = announced["url"]
        self.headers = {"Authorization": f"Bearer {(home / 'token').read_text().strip()}"}

    def client(self) -> httpx2.Client:
        return httpx2.Client(base_url=self.url, headers=self.headers, trust_env=False, timeout=20)


@contextmanager
def running_server(home: Path) -> Iterator[RunningServer]:
    server = RunningServer(home)
    try:
        yield server
    finally:
        server.process.kill()
        server.process.communicate()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server that all tests leave running."""
    with running_server(tmp_path_factory.mktemp("running") / "home") as server:
        yield server


def lines_until(stream: Iterator[str], wanted: str) -> list[str]:
    seen = []
    for line in stream:
        seen.append(line)
        if line.startswith(wanted):
            return seen
    raise AssertionError(f"the stream ended without {wanted!r}: {seen}")


def test_a_server_prints_its_address_and_keeps_its_secrets_to_its_owner(running: RunningServer) -> None:
    token_file = running.home / "token"
    assert running.greeting[1] == f"Open {running.url}/login and sign in with the token in {token_file}\n"
    assert token_file.read_text().strip() not in "".join(running.greeting)  # which may be the system's journal
    for path, mode in (("token", 0o600), ("server.json", 0o600), (".", 0o700)):
        assert (running.home / path).stat().st_mode & 0o777 == mode
    with running.client() as client:
        assert client.get("/readyz").json()["status"] == "ready"
        assert client.get("/api/v1/jobs").json() == {"items": [], "next": None}


def test_a_second_server_of_a_home_is_rejected_with_the_pid_of_the_first(running: RunningServer) -> None:
    second = rekindle(running.home, "serve", "--port", "0")
    assert second.returncode == 2
    assert f"pid {running.process.pid}" in second.stderr
    with running.client() as client:
        assert client.get("/healthz").status_code == 200


def test_a_port_in_use_is_an_error_and_leaves_no_announcement(running: RunningServer, tmp_path: Path) -> None:
    port = running.url.rpartition(":")[2]
    second = rekindle(tmp_path, "serve", "--port", port)
    assert second.returncode == 2
    assert f"port {port}" in second.stderr
    assert "--port 0" in second.stderr
    assert not (tmp_path / "server.json").exists()


def test_a_stop_ends_open_streams_at_once_whether_they_are_read_or_not(tmp_path: Path) -> None:
    with running_server(tmp_path / "home") as server, server.client() as client:
        host, port = server.url.removeprefix("http://").split(":")
        with (
            client.stream("GET", "/api/v1/events") as reading,
            client.stream("GET", "/api/v1/events") as unread,
            socket.create_connection((host, int(port))) as silent,
        ):
            head = ["GET /api/v1/events HTTP/1.1", f"Host: {host}", f"Authorization: {server.headers['Authorization']}"]
            silent.sendall("\r\n".join([*head, "", ""]).encode())
            silent.recv(1)
            lines = reading.iter_lines()
            lines_until(lines, "event: hello")
            assert unread.status_code == 200
            server.process.send_signal(signal.SIGTERM)
            list(lines)
            assert server.process.wait(timeout=20) == 0
        assert not (server.home / "server.json").exists()
        assert server.process.stdout is not None
        assert server.process.stderr is not None
        assert "graceful shutdown exceeded" not in server.process.stdout.read(), "no stream used up the grace"
        assert server.process.stderr.read() == ""


def test_changes_reach_the_stream_and_a_later_server_continues_it(tmp_path: Path, code: Path) -> None:
    (code / "train.py").write_text("")
    body = {"script": str(code / "train.py"), "device": "cpu", "python": sys.executable}
    with running_server(tmp_path / "home") as server, server.client() as client:
        with client.stream("GET", "/api/v1/events") as stream:
            lines = stream.iter_lines()
            lines_until(lines, "event: hello")
            client.post("/api/v1/jobs", json={**body, "after": []}, headers={"Idempotency-Key": "one"})
            seen = lines_until(lines, "id: ")
            data = next(line for line in seen if line.startswith("data: ") and '"state"' in line)
            job = json.loads(data.removeprefix("data: "))
        client.post(f"/api/v1/jobs/{job['id']}/cancel")
        server.process.kill()
        server.process.wait()
    with running_server(tmp_path / "home") as server, server.client() as client:
        with client.stream("GET", "/api/v1/events", headers={"Last-Event-ID": str(job["version"])}) as stream:
            seen = lines_until(stream.iter_lines(), "id: ")
        assert any(job["id"] in line for line in seen)
        again = client.post("/api/v1/jobs", json=body, headers={"Idempotency-Key": "one"}).json()
        assert again["id"] == job["id"]
