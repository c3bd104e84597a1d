"""Logs are followed by byte offsets: no line is lost and none comes twice, whatever happens in between."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

import own_loop
from cli_examples import attempt, job
from rekindle_service.client import (
    AsyncClient,
    AttemptHeader,
    Client,
    LogFilter,
    LogLine,
    NoServerError,
    ProblemError,
    Server,
    calls,
    log_follower,
    transport,
)
from rekindle_service.client.log_follower import LineBuffer

_CHUNK = 7  # bytes in one answer: small, so that lines and characters are cut everywhere
_REMOVED = b"\0"  # a byte of a log that is larger than it may be

Serve = Callable[["FakeServer"], "FakeServer"]

UNREACHABLE = httpx2.ConnectError("connection refused")


@dataclass
class FakeServer:
    """Answers as a server does; each step of ``script`` changes it before an answer about the job."""

    script: list[Callable[["FakeServer"], None]]
    state: str = "running"
    attempts: list[Any] = field(default_factory=list)
    files: dict[tuple[int, int, str], bytes] = field(default_factory=dict)
    failures: list[httpx2.TransportError | int] = field(default_factory=list)  # of the next requests; int: a status
    reads: int = 0

    def answer(self, method: str, url: str, **options: Any) -> httpx2.Response:
        request = httpx2.Request(method, f"http://server{url}")
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, httpx2.TransportError):
                raise failure
            headers = {"content-type": "application/problem+json"}
            problem = {"status": failure, "detail": f"detail of {failure}"}
            return httpx2.Response(failure, json=problem, headers=headers, request=request)
        match url.split("/")[5:]:
            case []:
                if self.script:
                    self.script.pop(0)(self)
                return httpx2.Response(200, json=job(state=self.state), request=request)
            case ["attempts"]:
                return httpx2.Response(200, json={"items": self.attempts}, request=request)
            case ["ranks"]:
                number = options["params"]["attempt"]
                ranks = sorted({rank for attempt, rank, _ in self.files if attempt == number})
                return httpx2.Response(200, json={"items": [{"rank": rank} for rank in ranks]}, request=request)
            case ["ranks", rank, "log"]:
                number = options["params"]["attempt"]
                if (number, int(rank)) not in {(attempt, each) for attempt, each, _ in self.files}:
                    headers = {"content-type": "application/problem+json"}
                    return httpx2.Response(404, json={"status": 404}, headers=headers, request=request)
                data, end = self._read(int(rank), **options["params"])
                begin = end - len(data)
                headers = {"X-Offset": str(begin), "X-Next-Offset": str(end)}
                if options["params"].get("offset", begin) < begin:
                    headers["X-Removed-From"] = "somewhere before"
                return httpx2.Response(200, content=data, headers=headers, request=request)
        raise AssertionError(url)

    def _read(
        self,
        rank: int,
        stream: str,
        attempt: int,
        raw: bool,
        offset: int = 0,
        limit: int = _CHUNK,
        tail: int | None = None,
    ) -> tuple[bytes, int]:
        self.reads += 1
        data = self.files.get((attempt, rank, stream), b"")
        if tail is not None:
            left = data.rpartition(_REMOVED)[2]
            return b"".join(left.splitlines(keepends=True)[-tail:])[-limit:], len(data)
        begin = len(data) - len(data[offset:].lstrip(_REMOVED))
        part = data[begin : begin + min(limit, _CHUNK)].partition(_REMOVED)[0]
        return part, begin + len(part)

    # steps of a script

    def write(self, number: int, rank: int, data: bytes, stream: str = "stdout") -> None:
        key = (number, rank, stream)
        self.files[key] = self.files.get(key, b"") + data

    def begin(self, number: int, **changes: Any) -> None:
        self.attempts.append(attempt(number, state="running", ended_at=None, outcome=None, **changes))

    def end(self, state: str | None = None) -> None:
        self.attempts[-1] = self.attempts[-1] | {"state": "ended"}
        self.state = state or self.state


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Let both kinds of client send their requests to a fake server, without pauses."""

    def connect(server: FakeServer) -> FakeServer:
        async def request(_: object, method: str, url: str, **options: Any) -> httpx2.Response:
            return server.answer(method, url, **options)

        for http in (transport.BlockingHttp, transport.AsyncHttp):
            monkeypatch.setattr(http, "request", request)
        return server

    async def without_pause(_: float) -> None: ...

    for http in (transport.BlockingHttp, transport.AsyncHttp):
        monkeypatch.setattr(http, "sleep", staticmethod(without_pause))
    return connect


def locate() -> Server:
    return Server("http://server", "token")


def followed(
    serve: Serve,
    server: FakeServer,
    changes: list[tuple[bool, str]] | None = None,
    *,
    follow: bool = True,
    **choice: Any,
) -> list[str]:
    """Every item as text; ``changes`` receives those of the connection."""
    serve(server)
    on_change = None if changes is None else lambda reachable, why: changes.append((reachable, why))
    with Client(locate) as client:
        items = client.logs("abcdefghij", LogFilter(**choice), follow=follow, on_connection_change=on_change)
        return [text(item) for item in items]


def text(item: LogLine | AttemptHeader) -> str:
    if isinstance(item, LogLine):
        return f"{item.rank} {item.text}"
    return f"attempt {item.attempt}" + (f" from {item.resumed_from_step}" if item.resumed_from_step else "")


def two_attempts() -> FakeServer:
    """Rank 1 dies in the first attempt; the second continues from step 120."""

    def first(server: FakeServer) -> None:
        server.begin(1)
        server.write(1, 0, b"step 1\nstep ")
        server.write(1, 1, b"step 1\n")

    def crash(server: FakeServer) -> None:
        server.write(1, 1, b"unfinished", "stderr")
        server.end()
        server.begin(2, resumed_from_step=120)
        server.write(2, 0, b"step 121\n")

    def over(server: FakeServer) -> None:
        server.write(2, 0, b"done")
        server.end("succeeded")

    return FakeServer([first, lambda server: server.write(1, 0, b"2\n"), crash, over])


ALL = [
    "attempt 1",
    "0 step 1",
    "1 step 1",
    "0 step 2",
    "1 unfinished",
    "attempt 2 from 120",
    "0 step 121",
    "0 done",
]


def failing(*failures: httpx2.TransportError | int) -> FakeServer:
    server = two_attempts()
    server.script.insert(1, lambda self: self.failures.extend(failures))
    return server


def test_an_asynchronous_client_follows_the_same(serve: Serve) -> None:
    async def follow() -> list[str]:
        async with AsyncClient(locate) as client:
            return [text(item) async for item in client.logs("abcdefghij", follow=True)]

    serve(failing(UNREACHABLE))
    assert own_loop.run(follow) == ALL


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ((), []),
        ((UNREACHABLE,) * 3, [(False, ""), (True, "")]),
        ((UNREACHABLE, 503, 503), [(False, ""), (False, "detail of 503"), (True, "")]),
    ],
    ids=["reachable", "unreachable for a while", "then without the files of the job"],
)
def test_every_line_of_every_rank_and_attempt_comes_once_and_in_order_and_an_outage_is_reported_once(
    serve: Serve, failures: tuple[httpx2.TransportError | int, ...], expected: list[tuple[bool, str]]
) -> None:
    changes: list[tuple[bool, str]] = []
    assert followed(serve, failing(*failures), changes) == ALL
    assert changes == expected


def test_a_server_that_never_answered_or_rejects_a_request_is_an_error(serve: Serve) -> None:
    unreachable = two_attempts()
    unreachable.failures.append(UNREACHABLE)
    with pytest.raises(NoServerError):
        followed(serve, unreachable)
    with pytest.raises(ProblemError):
        followed(serve, failing(404))


def test_one_rank_one_stream_or_one_attempt_can_be_selected(serve: Serve) -> None:
    assert followed(serve, two_attempts(), rank=1) == [line for line in ALL if not line.startswith("0")]
    assert followed(serve, two_attempts(), stream="stderr") == [ALL[0], "1 unfinished", ALL[5]]
    assert followed(serve, two_attempts(), attempt=2) == ALL[5:]


def test_a_rank_that_some_attempts_lack_is_shown_where_it_is_and_one_that_all_lack_is_an_error(serve: Serve) -> None:
    def smaller(server: FakeServer) -> None:
        server.end()
        server.begin(2, resumed_from_step=120)
        server.write(2, 0, b"alone\n")

    def first(server: FakeServer) -> None:
        server.begin(1)
        server.write(1, 0, b"a\n")
        server.write(1, 1, b"b\n")

    steps = [first, smaller, lambda server: server.end("succeeded")]
    assert followed(serve, FakeServer([*steps]), rank=1) == ["attempt 1", "1 b", "attempt 2 from 120"]
    with pytest.raises(ProblemError):
        followed(serve, FakeServer([*steps]), rank=7)


def test_a_tail_starts_with_the_latest_attempt_and_then_follows(serve: Serve) -> None:
    def second(server: FakeServer) -> None:
        server.begin(1)
        server.write(1, 0, b"old\n")
        server.end()
        server.begin(2, resumed_from_step=120)
        server.write(2, 0, b"a\nb\nc\n")

    def third(server: FakeServer) -> None:
        server.end()
        server.begin(3, resumed_from_step=140)
        server.write(3, 0, b"d\ne\nf\n")

    server = FakeServer([second, third, lambda self: self.end("failed")])
    latest = ["attempt 2 from 120", "0 b", "0 c"]
    assert followed(serve, server, tail=2) == [*latest, "attempt 3 from 140", "0 d", "0 e", "0 f"]


@pytest.mark.parametrize("removed", [0, 3, 50])
@pytest.mark.parametrize("limit", [8, 9, 30, 1000])
@pytest.mark.parametrize("count", [1, 3, 9, 20])
def test_a_tail_that_is_larger_than_one_answer_has_all_its_lines_up_to_a_removed_part(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, count: int, limit: int, removed: int
) -> None:
    for module in (calls, log_follower):
        monkeypatch.setattr(module, "MAX_LOG_BYTES", limit)
    lines = [f"line {number}" for number in range(12)]
    server = FakeServer([])
    server.begin(1)
    server.write(1, 0, b"first\n" + _REMOVED * removed + "\n".join(lines).encode())
    left = lines if removed else ["first", *lines]
    assert followed(serve, server, follow=False, tail=count) == ["attempt 1", *(f"0 {each}" for each in left[-count:])]


def test_an_attempt_that_resumed_from_nothing_is_shown_after_a_short_wait(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_follower, "_RESUME_STEP_TIMEOUT", 0)

    def second(server: FakeServer) -> None:
        server.begin(1)
        server.end()
        server.begin(2)
        server.write(2, 0, b"hello\n")

    server = FakeServer([second, lambda _: None, lambda self: self.end("succeeded")])
    assert followed(serve, server) == ["attempt 1", "attempt 2", "0 hello"]


def test_an_ended_attempt_is_not_read_again_and_again(serve: Serve) -> None:
    short, long = two_attempts(), two_attempts()
    long.script[3:3] = [lambda _: None] * 50
    followed(serve, short)
    followed(serve, long)
    assert long.reads - short.reads <= 50 * 2  # of the one live log of attempt 2, both streams


def test_without_follow_everything_written_so_far_is_shown(serve: Serve) -> None:
    server = two_attempts()
    for step in server.script:
        step(server)
    assert followed(serve, server, follow=False) == [ALL[0], "0 step 1", "0 step 2", "1 step 1", *ALL[4:]]


@given(st.binary(max_size=300), st.integers(min_value=1, max_value=20))
def test_however_the_bytes_are_cut_the_lines_join_to_the_same_bytes(data: bytes, size: int) -> None:
    buffer = LineBuffer()
    lines = [line for at in range(0, len(data), size) for line in buffer.feed(data[at : at + size])]
    whole = LineBuffer()
    assert [*lines, buffer.flush()] == [*whole.feed(data), whole.flush()]
    assert b"".join(lines) == data[: len(b"".join(lines))]


def test_a_progress_bar_is_cut_at_its_carriage_returns() -> None:
    buffer = LineBuffer()
    assert buffer.feed(b"10%\r20%\r") == [b"10%\r"]
    assert buffer.feed(b"\nnext\r") == [b"20%\r\n"]
    assert buffer.feed(b"\n") == [b"next\r\n"]


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    buffer = LineBuffer()
    lines = [line for _ in range(100) for line in buffer.feed(b"x" * 10_000)]
    assert all(len(line) < 100_000 for line in lines)
    assert len(b"".join(lines)) + len(buffer.flush()) == 1_000_000
