"""What somebody without a token, a web page of another site, and a careless or hostile client can do by HTTP."""

import http.client
import io
import json
import os
import socket
import threading
import time
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.waiting import until
from job_records import record_attempt
from rekindle_service.api import request_body
from rekindle_service.api.downloads import Download
from rekindle_service.api.problems import ApiError
from rekindle_service.api.routes import event_routes
from rekindle_service.jobs.packaging import git_checkout
from rekindle_service.run_readers.zip_stream import Member, zip_stream
from rekindle_service.schemas.job_requests import JobCreate
from security.conftest import BEARER, Served

JSON = {"Content-Type": "application/json"}
JOBS = "/api/v1/jobs"


def connect(served: Served) -> socket.socket:
    return socket.create_connection(served.address, timeout=60)


def head(method: str, path: str, *headers: str, token: bool = False) -> bytes:
    bearer = [f"Authorization: {BEARER['Authorization']}"] if token else []
    content_type = "application/gzip" if path.endswith("/bundles") else "application/json"
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Type: {content_type}", *bearer, *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def send_head(client: socket.socket, method: str, path: str, *headers: str, token: bool = False) -> None:
    client.sendall(head(method, path, *headers, token=token))


def answer_of(client: socket.socket) -> bytes:
    """All that the server sends until it closes the connection."""
    received = b""
    while data := client.recv(65536):
        received += data
    return received


def is_served(served: Served) -> bool:
    return served.status("GET", "/healthz", headers={}) == 200 and served.status("GET", JOBS) == 200


# --- bodies


def test_a_login_of_megabytes_is_rejected_unread(served: Served) -> None:
    body = json.dumps({"token": "x", **{f"k{number}": number for number in range(200_000)}}).encode()
    for _ in range(2):
        assert served.status("POST", "/login", body, JSON) == 413


def test_a_login_that_drips_is_ended(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "_OPEN_BODY_SECONDS", 0.3)
    with connect(served) as client:
        send_head(client, "POST", "/login", "Content-Length: 1000")
        client.sendall(b"{")
        answer = answer_of(client)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("path", [JOBS, "/api/v1/bundles"])
def test_a_body_that_drips_is_ended(served: Served, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(request_body, "_BODY_SECONDS", 0.3)
    with connect(served) as client:
        send_head(client, "POST", path, "Content-Length: 1000", token=True)
        client.sendall(b"x")
        assert answer_of(client).startswith(b"HTTP/1.1 408 ")


def test_a_slow_body_that_keeps_coming_is_accepted(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "_BODY_SECONDS", 3.0)
    monkeypatch.setattr(request_body, "_MIN_BYTES_PER_SECOND", 1)
    with connect(served) as client:
        body = b'{"script": "nowhere"}'
        send_head(client, "POST", JOBS, f"Content-Length: {len(body)}", token=True)
        for at in range(0, len(body), 7):
            client.sendall(body[at : at + 7])
            time.sleep(0.05)
        assert client.recv(65536).startswith(b"HTTP/1.1 422 ")


def test_half_sent_bodies_have_a_limit_together(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_body, "_MAX_BUFFERED_BYTES", 3_000_000)
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(served)) for _ in range(6)]
        for client in clients:
            send_head(client, "POST", JOBS, "Content-Length: 1000001", token=True)
            client.sendall(b"x" * 1_000_000)
        rejected = [client for client in clients if _is_rejected(client)]
        assert len(rejected) >= 3
        assert served.status("GET", JOBS) == 200, "a request without a body needs no share"
    until(lambda: served.status("POST", JOBS, b"{}", {**BEARER, **JSON}) == 422 or None, "their shares are free again")


def _is_rejected(client: socket.socket) -> bool:
    client.settimeout(1)
    try:
        return client.recv(65536).startswith(b"HTTP/1.1 503 ")
    except TimeoutError:
        return False


def test_a_body_of_a_gigabyte_is_rejected_by_its_length_and_while_it_comes(served: Served) -> None:
    for path in (JOBS, "/api/v1/bundles"):
        with connect(served) as client:
            send_head(client, "POST", path, "Content-Length: 1000000000", token=True)
            assert client.recv(65536).startswith(b"HTTP/1.1 413 ")
        with connect(served) as client:
            send_head(client, "POST", path, "Transfer-Encoding: chunked", token=True)
            chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
            for _ in range(12):  # the server reads on, so that the client reads the answer after all
                client.sendall(chunk)
            assert client.recv(65536).startswith(b"HTTP/1.1 413 ")
    assert is_served(served)


@pytest.mark.parametrize(
    "text",
    [
        "{" + ",".join(f'"k{number}" :{number}' for number in range(request_body.MAX_KEYS + 1)) + "}",
        "[" + "0," * 2_000_000 + "0]",
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
    ids=["keys", "values", "depth", "objects"],
)
def test_json_of_too_many_parts_is_not_parsed(served: Served, text: str) -> None:
    answer, content = served.request("POST", JOBS, text.encode(), {**BEARER, **JSON})
    assert answer.status == 422
    assert "levels of nesting" in json.loads(content)["errors"][0]["rule"]


def test_a_large_request_within_the_limits_is_validated(served: Served) -> None:
    args = ['a "[,{:\\'] * 10_000
    body = json.dumps({"script": "nowhere.py", "args": args, "env": {f"V{number}": "" for number in range(1000)}})
    assert request_body.violated_limit(body.encode()) is None
    assert JobCreate.model_validate(json.loads(body)).args == args
    answer, content = served.request("POST", JOBS, body.encode(), {**BEARER, **JSON})
    assert answer.status == 422
    assert {error["field"] for error in json.loads(content)["errors"]} == {"script"}


@pytest.mark.parametrize(
    ("text", "violates"),
    [
        (b'"' + b"[" * 1000 + b'"', False),
        (b'"' + b'\\"[' * 1000 + b'"', False),
        (b'"\\\\"' + b"[" * 33, True),
        (b"[" * 32 + b"]" * 32, False),
        (b"[" * 33 + b"]" * 33, True),
        (b"\xff\xfe" + b"{" * 40, True),
        (b"", False),
        (b'"' * 100_001, False),
    ],
)
def test_what_is_inside_a_string_is_no_structure(text: bytes, violates: bool) -> None:
    assert (request_body.violated_limit(text) is not None) == violates


@pytest.mark.parametrize("part", [b'"', b'"\\', b'\\"', b"[", b"{", b",", b":", b"1", b" ", b'"a":'])
def test_the_limits_are_checked_in_linear_time(part: bytes) -> None:
    """Megabytes of a part that would make a careless pattern backtrack: the test would not end."""
    request_body.violated_limit(part * (2_000_000 // len(part)))


# --- threads


@contextmanager
def silent_host() -> Iterator[str]:
    """A git host that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        yield f"ssh://git@127.0.0.1:{listener.getsockname()[1]}/team/repository.git"


def test_a_silent_git_host_stops_no_other_route(served: Served, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(git_checkout, "_TIMEOUT", 3)
    monkeypatch.setattr(git_checkout, "_MAX_WAIT_SECONDS", 0.5)
    (tmp_path / "train.py").write_text("")
    local = {"script": "train.py", "code": {"path": str(tmp_path)}, "device": "cpu"}
    with silent_host() as url:
        body = json.dumps({"script": "train.py", "code": {"git": url}, "device": "cpu"})
        answers: list[tuple[int, str | None, bytes]] = []

        def submit() -> None:
            answer, content = served.request("POST", JOBS, body, {**BEARER, **JSON})
            answers.append((answer.status, answer.getheader("Retry-After"), content))

        threads = [threading.Thread(target=submit) for _ in range(40)]
        for thread in threads:
            thread.start()
        assert is_served(served)
        assert served.status("GET", "/readyz", headers={}) == 200
        assert served.status("POST", JOBS, json.dumps(local), {**BEARER, **JSON}) == 201
        assert any(thread.is_alive() for thread in threads), "the host is still silent"
        for thread in threads:
            thread.join()
    busy = [(after, json.loads(content)) for status, after, content in answers if status == 503]
    assert len(answers) == 40
    assert len(busy) >= 32
    assert {after for after, _ in busy} == {"10"}
    assert {problem["type"] for _, problem in busy} == {"/problems/busy"}
    assert {status for status, _, _ in answers} == {422, 503}


def test_listeners_have_a_limit_and_health_needs_no_thread(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_routes, "_MAX_LISTENERS", 20)
    with ExitStack() as stack:
        for _ in range(20):
            client = stack.enter_context(connect(served))
            send_head(client, "GET", "/api/v1/events", token=True)
            assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        answer, content = served.request("GET", "/api/v1/events")
        assert (answer.status, answer.getheader("Retry-After")) == (503, "10")
        assert json.loads(content)["type"] == "/problems/too-many-listeners"
        assert is_served(served)
    until(lambda: served.server.state.listeners.count == 0 or None, "listeners that left are not counted")
    with connect(served) as client:
        send_head(client, "GET", "/api/v1/events", token=True)
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")


# --- Host, paths, queries, ranges


def test_a_second_host_header_reaches_no_route(served: Served) -> None:
    with connect(served) as client:
        send_head(client, "GET", JOBS, "Host: evil.example", token=True)
        assert client.recv(1000).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "headers",
    [
        ("Content-Length: 4", "Transfer-Encoding: chunked"),
        ("Transfer-Encoding: chunked", "content-length: 0"),
        ("Content-Length: 4", "Content-Length: 5"),
        ("Content-Length: 4, 5",),
        ("Transfer-Encoding: chunked, identity",),
    ],
)
def test_a_body_of_two_lengths_is_refused_and_what_follows_is_no_request(
    served: Served, headers: tuple[str, ...]
) -> None:
    with connect(served) as client:
        # At once: the kernel drops an answer where more comes after the server has closed the connection.
        client.sendall(head("POST", JOBS, *headers, token=True) + b"0\r\n\r\n" + head("GET", JOBS, token=True))
        answer = answer_of(client)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert b"items" not in answer
    assert b"connection: close" in answer.lower()
    assert b"/problems/bad-request" in answer


TRICKS = (
    "../../../etc/passwd",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%00",
    "%ff%fe",
    "%0d%0aSet-Cookie:%20x=1",
    "-1",
    "99999999999999999999999999",
    "NaN",
)
MORE_TRICKS = (
    "..",
    "%2e%2e%2f%2e%2e%2ftoken",
    "..%5c..%5ctoken",
    "%2fetc%2fpasswd",
    "abcdefghij%00",
    "%c0%ae%c0%ae%c0%af",
    "....//token",
    "'%20OR%201=1--",
    "0x10",
    "1e5",
    "1e999",
    "%ED%A0%80",
    "%F0%9F%92%A9",
    "a" * 5000,
)


def test_no_path_or_parameter_leaves_its_directory(served: Served, job: dict[str, Any]) -> None:
    """Each trick in place of each parameter of each route: an ordinary error, and no byte of another file."""
    _try_tricks(served, job, TRICKS)


@pytest.mark.soak
def test_no_other_trick_leaves_its_directory(served: Served, job: dict[str, Any]) -> None:
    _try_tricks(served, job, MORE_TRICKS)


def _fill(job: dict[str, Any]) -> dict[str, str]:
    """Values for the parameters of paths."""
    return {"job_id": job["id"], "other": job["id"], "rank": "0", "step": "1", "experiment_id": "abcdefghij"}


def _try_tricks(served: Served, job: dict[str, Any], tricks: Sequence[str]) -> None:
    routes = json.loads(served.request("GET", "/openapi.json")[1])["paths"]
    secret = served.server.state.home.ensure_token().encode()
    fill = _fill(job)
    urls = [("GET", prefix + trick) for prefix in ("/", "/static/", "/static/shared/", "/jobs/") for trick in tricks]
    for path, methods in routes.items():
        for method in set(methods) - {"delete"}:
            parameters = methods[method].get("parameters", [])
            urls += [(method.upper(), url) for url in _tricked(path, parameters, fill, tricks)]
    with closing(http.client.HTTPConnection(*served.address, timeout=60)) as connection:
        for method, url in urls:
            connection.request(method, url, headers=BEARER)
            answer = connection.getresponse()
            content = answer.read()
            assert answer.status < 500, (method, url, content)
            assert b"root:" not in content
            assert secret not in content
            assert answer.getheader("Set-Cookie") is None


def _tricked(path: str, parameters: list[dict[str, Any]], fill: dict[str, str], tricks: Sequence[str]) -> Iterator[str]:
    if path == "/api/v1/events":
        return  # an accepted one would stream for ever
    for parameter in parameters:
        name, place = parameter["name"], parameter["in"]
        for trick in tricks:
            if place == "path":
                yield path.replace("{" + name + "}", trick).format(**fill)
            elif place == "query":
                yield f"{path.format(**fill)}?{name}={trick}"


def test_an_unknown_query_parameter_is_rejected_by_every_route(served: Served, job: dict[str, Any]) -> None:
    routes = json.loads(served.request("GET", "/openapi.json")[1])["paths"]
    fill = {**_fill(job), "token_id": "1", "name": "cpu:0"}
    assert len(routes) > 30
    for path, methods in routes.items():
        for method in methods:
            answer, content = served.request(method.upper(), f"{path.format(**fill)}?limitt=3", headers=BEARER)
            assert answer.status == 422, (method, path, answer.status)
            assert json.loads(content)["errors"][0]["field"] == "limitt"
    problem = json.loads(served.request("GET", f"{JOBS}?limitt=3")[1])
    assert problem["errors"][0]["hint"] == "did you mean 'limit'?"
    assert f"{JOBS} has no query parameter 'limitt'; known are: state, name" in problem["detail"]
    problem = json.loads(served.request("GET", f"{JOBS}/{job['id']}?x=1")[1])
    assert "this route has none" in problem["detail"]


def test_a_range_gives_bytes_of_the_log_or_an_error(served: Served, log: tuple[str, bytes]) -> None:
    path, content = log
    thousand = ",".join(f"{at}-{at}" for at in range(1000))
    hostile = (thousand, "-0", "5-1", "99999999999999999-", "0-99999999999999999999999999999", "--1", "a-b", "0-0,-1")
    for header in (*(f"bytes={each}" for each in hostile), "bytes=\xd9\xa3-\xd9\xa4", "items=0-1", "bytes =0-1"):
        answer, received = served.request("GET", path, headers={**BEARER, "Range": header})
        assert answer.status in (200, 206, 416), header
        if answer.status == 416:
            assert json.loads(received)["status"] == 416
            assert answer.getheader("Content-Range") == f"bytes */{len(content)}"
        else:
            assert received in content, header
        static, _ = served.request("GET", "/static/shared/base.css", headers={**BEARER, "Range": header})
        assert static.status in (200, 206, 400, 416), header


# --- files that change while they are read


@pytest.fixture(scope="module")
def log(served: Served, job: dict[str, Any]) -> tuple[str, bytes]:
    """URL and content of the log of rank 0."""
    content = b"line\n" * 1000
    record_attempt(served.server.run_dir(job)).rank(0).log("stdout").write_bytes(content)
    return f"{JOBS}/{job['id']}/ranks/0/log", content


def test_a_log_that_becomes_shorter_ends_its_download_without_a_traceback(
    served: Served, job: dict[str, Any], log: tuple[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    path = served.server.run_dir(job).attempt(1).rank(0).log("stderr")
    path.write_bytes(b"x" * 80_000_000)
    with connect(served) as client:
        send_head(client, "GET", f"{log[0]}/file?stream=stderr", token=True)
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
        os.truncate(path, 1000)
        received = answer_of(client)
    assert len(received) < 80_000_000
    until(lambda: "A download is incomplete" in capsys.readouterr().out or None, "the server has logged it")
    path.unlink()
    assert "Traceback" not in capsys.readouterr().out
    assert is_served(served)


@pytest.mark.parametrize("mtime", [-10, 1 << 40, 4_400_000_000])
def test_any_date_of_a_log_is_archived(served: Served, job: dict[str, Any], log: tuple[str, bytes], mtime: int) -> None:
    os.utime(served.server.run_dir(job).attempt(1).rank(0).log("stdout"), (mtime, mtime))
    answer, content = served.request("GET", f"{JOBS}/{job['id']}/logs.zip")
    assert answer.status == 200
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.read("attempt-1/rank-0/stdout.log") == log[1]


def test_files_that_vanish_give_a_problem_or_an_incomplete_download(tmp_path: Path) -> None:
    here, gone = tmp_path / "here", tmp_path / "gone"
    here.write_bytes(b"x" * 1000)
    members = [Member("gone", gone), Member("here", here)]
    with pytest.raises(ApiError) as caught:
        Download(zip_stream(tmp_path, members, compress=False, complete=True), "application/zip")
    assert (caught.value.status, caught.value.slug) == (409, "files-changed")
    chunks = zip_stream(tmp_path, reversed(members), compress=False, complete=True)
    with pytest.raises(FileNotFoundError):
        list(chunks)
    with zipfile.ZipFile(io.BytesIO(b"".join(zip_stream(tmp_path, members, compress=False)))) as archive:
        assert archive.namelist() == ["here"]


# --- connections


def test_thousands_of_connections_lock_nobody_out(served: Served, pytestconfig: pytest.Config) -> None:
    """Half of them are kept, in the middle of a head or of a login: more than strangers may have."""
    number_of_connections = 10_000 if pytestconfig.getoption("--soak") else 2_400
    with ExitStack() as stack:
        for number in range(number_of_connections):
            client = socket.create_connection(served.address, timeout=60)
            if number % 2:
                client.close()
                continue
            stack.callback(client.close)
            if number % 4:
                client.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
            else:
                send_head(client, "POST", "/login", "Content-Length: 1000")
            if number % 1000 == 0:
                assert served.status("GET", JOBS) == 200
        assert is_served(served)
    assert is_served(served)
