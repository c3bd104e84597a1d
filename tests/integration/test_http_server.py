"""What the HTTP server does with clients that send nothing or too little, and with too many clients."""

import json
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import anyio
import pytest
from starlette.types import Receive, Scope, Send

from e2e.waiting import until
from rekindle_service import http_server
from rekindle_service.http_server import HttpServer, listen, max_connections, raise_file_limit

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
HELD = REQUEST.replace(b"/ ", b"/held ", 1)
UPLOAD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
TIMEOUT = 0.3  # seconds
RELEASED = threading.Event()


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer "ok": at ``/slow`` after more than the header timeout, at ``/held`` once it is released."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"o", "more_body": True})
    if scope["path"] == "/slow":
        await anyio.sleep(3 * TIMEOUT)
    while scope["path"] == "/held" and not RELEASED.is_set():
        await anyio.sleep(0.01)
    await send({"type": "http.response.body", "body": b"k"})


@contextmanager
def running_server() -> Iterator[tuple[str, int]]:
    ready = threading.Event()
    with listen("127.0.0.1", 0) as listener:
        server = HttpServer(answer, listener, threading.Event(), ready.set)
        thread = threading.Thread(target=server.run_until_stopped)
        thread.start()
        ready.wait()
        yield listener.getsockname()
        server.stop()
        thread.join(60)
        assert not thread.is_alive()
        server.stop()  # once more does no harm


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    monkeypatch.setattr(http_server, "_HEADER_TIMEOUT", TIMEOUT)
    monkeypatch.setattr(http_server, "_MAX_CONNECTIONS", 3)
    RELEASED.clear()
    with running_server() as found:
        yield found


def test_a_stop_does_not_wait_for_the_next_update_of_the_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_DATE_INTERVAL", 600.0)
    with running_server():
        pass


def test_the_date_of_an_answer_is_that_of_its_second(address: tuple[str, int]) -> None:
    dates = set[bytes]()
    until(lambda: dates.add(date_of(address)) or len(dates) > 1, "the date has changed")


def date_of(address: tuple[str, int]) -> bytes:
    with connect(address) as client:
        client.sendall(REQUEST)
        (date,) = [line for line in read(client, until=b"ok").split(b"\r\n") if line.startswith(b"date: ")]
    return date


def connect(address: tuple[str, int]) -> socket.socket:
    return socket.create_connection(address, timeout=20)


def read(client: socket.socket, until: bytes = b"") -> bytes:
    """Everything up to the end of the connection, or to ``until``."""
    received = b""
    while not (until and received.endswith(until)) and (data := client.recv(1000)):
        received += data
    return received


def assert_answered(client: socket.socket, request: bytes) -> None:
    client.sendall(request)
    assert read(client, until=b"ok").endswith(b"ok")


def is_rejected(client: socket.socket) -> bool:
    try:
        client.sendall(REQUEST)
        return read(client, until=b"ok") == b""
    except ConnectionError:
        return True


def is_closed(client: socket.socket) -> bool:
    try:
        return read(client) == b""
    except ConnectionError:  # it had sent what the server did not read
        return True


@pytest.mark.parametrize(
    ("first", "begun"),
    [(b"", b""), (b"", REQUEST[:-2]), (REQUEST, REQUEST[:5]), (UPLOAD, REQUEST[:5])],
    ids=["silent", "all but the end", "after another request", "after an upload without its content"],
)
def test_a_client_that_sends_no_whole_request_in_time_is_disconnected(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch, first: bytes, begun: bytes
) -> None:
    monkeypatch.setattr(http_server, "_REJECTED_BODY_TIMEOUT", TIMEOUT)
    with connect(address) as client:
        if first:
            assert_answered(client, first)
        client.sendall(begun)
        assert read(client) == b""


@pytest.mark.parametrize("before", [b"", REQUEST], ids=["at first", "behind another request"])
def test_what_is_no_request_is_answered_with_a_problem(address: tuple[str, int], before: bytes) -> None:
    with connect(address) as client:
        if before:
            assert_answered(client, before)
        client.sendall(b"nonsense\r\n\r\n")
        head, _, body = read(client).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"application/problem+json" in head
        assert json.loads(body)["status"] == 400


def test_an_answer_may_take_longer_than_a_question(address: tuple[str, int]) -> None:
    with connect(address) as client:
        assert_answered(client, REQUEST.replace(b"/ ", b"/slow ", 1))


def test_a_refused_upload_may_be_sent_to_its_end(address: tuple[str, int]) -> None:
    with connect(address) as client:
        assert_answered(client, UPLOAD)
        client.sendall(b"x")
        client.settimeout(2 * TIMEOUT)
        with pytest.raises(TimeoutError):
            read(client)
        client.settimeout(20)
        assert_answered(client, b"x" * 999 + REQUEST)


def test_a_client_too_many_is_rejected_until_another_has_its_answer(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "_HEADER_TIMEOUT", 60.0)
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(address)) for _ in range(3)]
        for client in clients:
            client.sendall(HELD)
            assert read(client, until=b"o").endswith(b"o"), "the answer has begun"
        with connect(address) as one_too_many:
            assert is_rejected(one_too_many)
        RELEASED.set()
        for client in clients:
            assert read(client, until=b"k") == b"k"
        with connect(address) as another:
            assert_answered(another, REQUEST)
        assert is_closed(clients[0]), "the oldest that awaits nothing makes room"


@pytest.mark.parametrize("begun", [b"", REQUEST[:-2], UPLOAD], ids=["silent", "half a request", "an upload"])
def test_idle_clients_keep_nobody_out(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(http_server, "_HEADER_TIMEOUT", 60.0)
    with ExitStack() as stack:
        served = stack.enter_context(connect(address))
        served.sendall(HELD)
        assert read(served, until=b"o").endswith(b"o")
        idlers = []
        for _ in range(30):
            idlers.append(stack.enter_context(connect(address)))
            if begun == UPLOAD:
                assert_answered(idlers[-1], begun)
            else:
                idlers[-1].sendall(begun)
        for idler in idlers[:-2]:
            assert is_closed(idler), "the oldest idlers are closed"
        RELEASED.set()
        assert read(served, until=b"k") == b"k", "who awaits an answer gets it"
        with connect(address) as another:
            assert_answered(another, REQUEST)


def test_as_many_files_may_be_open_as_the_machine_allows() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
        assert max_connections() == 128
        raise_file_limit()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert hard == before[1]
        assert soft == (65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
