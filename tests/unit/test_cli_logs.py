"""Logs are followed by byte offsets: nothing is lost and nothing comes twice, whatever happens in between."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import own_loop
from cli_examples import attempt, job
from rekindle_service.cli.logs import LogPage, headline
from rekindle_service.cli.patience import teller
from rekindle_service.cli.progress_bars import latest_drawings
from rekindle_service.client import (
    Absence,
    Headline,
    LogChoice,
    LogLine,
    LogPart,
    NoServerError,
    ProblemError,
    dialogue,
    log_follower,
)
from rekindle_service.client.asynchronous import hold_async
from rekindle_service.client.dialogue import hold, patiently
from rekindle_service.client.line_cutter import LineCutter
from rekindle_service.client.log_follower import LogFollower

_CHUNK = 7  # bytes in one answer: small, so that lines and characters are cut everywhere


@dataclass
class FakeServer:
    """A server as the follower sees it; ``script`` changes it before each look at the job, until nothing is left."""

    script: list[Callable[["FakeServer"], None]]
    state: str = "running"
    attempts_now: list[Any] = field(default_factory=list)
    files: dict[tuple[int, int, str], bytes] = field(default_factory=dict)
    failures: list[Exception] = field(default_factory=list)
    reads: int = 0

    def job(self, job_id: str) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        if self.script:
            self.script.pop(0)(self)
        return job(state=self.state)

    def attempts(self, job_id: str) -> list[Any]:
        return list(self.attempts_now)

    def ranks(self, job_id: str, number: int | None = None) -> list[Any]:
        return [{"rank": rank} for rank in sorted({rank for attempt, rank, _ in self.files if attempt == number})]

    def log(self, job_id: str, rank: int, stream: str, number: int, *, offset: int) -> LogPart:
        self.reads += 1
        if self.failures:
            raise self.failures.pop(0)
        data = self.files.get((number, rank, stream), b"")[offset : offset + _CHUNK]
        return LogPart(data, offset + len(data))

    def log_tail(self, job_id: str, rank: int, stream: str, number: int, lines: int) -> LogPart:
        data = self.files.get((number, rank, stream), b"")
        return LogPart(b"".join(data.splitlines(keepends=True)[-lines:]), len(data))

    # steps of a script

    def write(self, number: int, rank: int, data: bytes, stream: str = "stdout") -> None:
        key = (number, rank, stream)
        self.files[key] = self.files.get(key, b"") + data

    def begin(self, number: int, **changes: Any) -> None:
        self.attempts_now.append(attempt(number, state="running", ended_at=None, outcome=None, **changes))

    def end(self, state: str | None = None) -> None:
        self.attempts_now[-1] = self.attempts_now[-1] | {"state": "ended"}
        self.state = state or self.state


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follower, "_POLL", 0)
    monkeypatch.setattr(dialogue, "PAUSE", 0)


def followed(server: FakeServer, **choice: Any) -> tuple[list[str], list[str]]:
    """Every piece as text, and the notes."""
    notes: list[str] = []
    following = LogFollower("abcdefghij", LogChoice(**choice)).follow()
    return [told(piece) for piece in hold(server, patiently(following, Absence(teller(notes.append))))], notes


def told(piece: LogLine | Headline) -> str:
    return headline(piece) if isinstance(piece, Headline) else f"{piece.rank} {piece.text}"


def two_attempts() -> FakeServer:
    """Rank 1 dies in the first attempt; the second goes on from step 120."""

    def first(server: FakeServer) -> None:
        server.begin(1)
        server.write(1, 0, b"step 1\nstep ")
        server.write(1, 1, b"step 1\n")

    def more(server: FakeServer) -> None:
        server.write(1, 0, b"2\n")

    def crash(server: FakeServer) -> None:
        server.write(1, 1, b"unfinished", "stderr")
        server.end()
        server.begin(2, resumed_from_step=120)
        server.write(2, 0, b"step 121\n")

    def over(server: FakeServer) -> None:
        server.write(2, 0, b"done")
        server.end("succeeded")

    return FakeServer([first, more, crash, over])


ALL = [
    "── attempt 1 ──",
    "0 step 1",
    "1 step 1",
    "0 step 2",
    "1 unfinished",
    "── attempt 2, resumed from step 120 ──",
    "0 step 121",
    "0 done",
]


def test_every_line_of_every_rank_and_attempt_comes_once_and_in_order() -> None:
    assert followed(two_attempts())[0] == ALL


class AwaitedServer:
    """The same server for an asynchronous client."""

    def __init__(self, server: FakeServer) -> None:
        self._server = server

    def __getattr__(self, name: str) -> Callable[..., Any]:
        async def method(*args: Any, **options: Any) -> Any:
            return getattr(self._server, name)(*args, **options)

        return method


def test_an_asynchronous_client_is_told_the_same() -> None:
    server = two_attempts()
    server.script.insert(1, lambda self: self.failures.append(NoServerError("gone")))

    async def follow() -> list[str]:
        following = patiently(LogFollower("abcdefghij", LogChoice()).follow(), Absence())
        return [told(piece) async for piece in hold_async(AwaitedServer(server), following)]

    assert own_loop.run(follow) == ALL


def test_a_server_that_goes_away_costs_no_line_and_is_told_once() -> None:
    server = two_attempts()
    away = NoServerError("gone")
    server.script.insert(1, lambda self: self.failures.extend([away, away, away]))
    lines, notes = followed(server)
    assert lines == ALL
    assert [note.partition(";")[0] for note in notes] == ["The server is away", "The server is back."]


def test_a_server_that_says_it_is_stopping_is_waited_for_as_well() -> None:
    server = two_attempts()
    server.script.insert(1, lambda self: self.failures.append(ProblemError({"status": 503})))
    assert followed(server)[0] == ALL


def test_a_server_that_was_never_there_is_an_error() -> None:
    server = two_attempts()
    server.failures.append(NoServerError("none"))
    with pytest.raises(NoServerError):
        followed(server)


def test_a_refusal_is_not_repeated() -> None:
    server = two_attempts()
    server.script.insert(1, lambda self: self.failures.append(ProblemError({"status": 404})))
    with pytest.raises(ProblemError):
        followed(server)


def test_one_rank_one_stream_or_one_attempt_can_be_chosen() -> None:
    assert followed(two_attempts(), rank=1)[0] == [
        "── attempt 1 ──",
        "1 step 1",
        "1 unfinished",
        "── attempt 2, resumed from step 120 ──",
    ]
    assert followed(two_attempts(), stream="stderr")[0] == [
        "── attempt 1 ──",
        "1 unfinished",
        "── attempt 2, resumed from step 120 ──",
    ]
    assert followed(two_attempts(), attempt=2)[0] == ALL[5:]


def test_a_tail_begins_with_the_newest_attempt_and_then_follows() -> None:
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
    assert followed(server, tail=2)[0] == [
        "── attempt 2, resumed from step 120 ──",
        "0 b",
        "0 c",
        "── attempt 3, resumed from step 140 ──",
        "0 d",
        "0 e",
        "0 f",
    ]


def test_an_attempt_that_resumed_from_nothing_is_shown_after_a_short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_follower, "_RESUME_KNOWN_AFTER", 0)

    def second(server: FakeServer) -> None:
        server.begin(1)
        server.end()
        server.begin(2)
        server.write(2, 0, b"hello\n")

    server = FakeServer([second, lambda self: None, lambda self: self.end("succeeded")])
    assert followed(server)[0] == ["── attempt 1 ──", "── attempt 2 ──", "0 hello"]


def test_an_ended_attempt_is_not_read_again_and_again() -> None:
    def rest(server: FakeServer) -> None:
        pass

    short, long = two_attempts(), two_attempts()
    long.script[3:3] = [rest] * 50
    followed(short)
    followed(long)
    assert long.reads - short.reads <= 50 * 2  # of the one live log of attempt 2, both streams


def test_what_is_there_so_far_is_shown_without_following() -> None:
    server = two_attempts()
    for step in server.script:
        step(server)
    assert [told(piece) for piece in hold(server, LogFollower("abcdefghij", LogChoice()).so_far())] == [
        "── attempt 1 ──",
        "0 step 1",
        "0 step 2",
        "1 step 1",
        "1 unfinished",
        "── attempt 2, resumed from step 120 ──",
        "0 step 121",
        "0 done",
    ]


@given(st.binary(max_size=300), st.integers(min_value=1, max_value=20))
def test_however_the_bytes_are_cut_the_lines_join_to_the_same_bytes(data: bytes, size: int) -> None:
    cutter = LineCutter()
    lines = [line for at in range(0, len(data), size) for line in cutter.cut(data[at : at + size])]
    whole = LineCutter()
    assert [*lines, cutter.rest()] == [*whole.cut(data), whole.rest()]
    assert b"".join(lines) == data[: len(b"".join(lines))]


def test_a_progress_bar_is_cut_at_its_carriage_returns() -> None:
    cutter = LineCutter()
    assert cutter.cut(b"10%\r20%\r") == [b"10%\r"]
    assert cutter.cut(b"\nnext\r") == [b"20%\r\n"]
    assert cutter.cut(b"\n") == [b"next\r\n"]


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    cutter = LineCutter()
    lines = [line for _ in range(100) for line in cutter.cut(b"x" * 10_000)]
    assert all(len(line) < 100_000 for line in lines)
    assert len(b"".join(lines)) + len(cutter.rest()) == 1_000_000


def test_a_shown_line_is_harmless_and_a_raw_one_is_what_the_script_wrote(capfdbinary: Any) -> None:
    LogPage(raw=False, prefixed=True, coloured=False).write(LogLine(1, "stdout", b"\x1b[31mred\xff\n"))
    assert capfdbinary.readouterr().out == "[rank 1] red\ufffd\n".encode()
    LogPage(raw=True, prefixed=False, coloured=False).write(LogLine(1, "stdout", b"\x1b[31mred\xff\r\n"))
    assert capfdbinary.readouterr().out == b"\x1b[31mred\xff\r\n"


def test_every_rank_has_its_prefix_and_on_a_terminal_its_colour(capsys: pytest.CaptureFixture[str]) -> None:
    page = LogPage(raw=False, prefixed=True, coloured=True)
    page.write(LogLine(0, "stdout", b"a\n"))
    page.write(LogLine(1, "stderr", b"b\n"))
    page.write(LogLine(11, "stdout", b"c\n"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "\x1b[36m[rank 0]\x1b[0m a"
    assert lines[1] == "\x1b[33m[rank 1]\x1b[0m \x1b[2mb\x1b[0m"
    assert lines[2].startswith("\x1b[33m[rank 11]")


def test_the_headline_of_the_first_attempt_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    page = LogPage(raw=False, prefixed=True, coloured=False)
    page.write(Headline(1, None))
    page.write(Headline(2, 120))
    assert capsys.readouterr().out == "── attempt 2, resumed from step 120 ──\n"


def bar(*drawings: bytes, rank: int = 0) -> list[LogLine]:
    """What tqdm writes to standard error, as it comes in lines."""
    cutter = LineCutter()
    lines = cutter.cut(b"".join(b"\r" + drawing for drawing in drawings))
    return [LogLine(rank, "stderr", raw) for raw in [*lines, cutter.rest()] if raw]


def test_of_a_progress_bar_the_last_drawing_stays_and_lines_between_two_ranks_bars_are_kept() -> None:
    lines = [
        *bar(b"10%", b"20%", b"100%\n"),
        *bar(b" 5%", b" 6%", b"      ", rank=1),
        LogLine(1, "stdout", b"epoch 1\n"),
    ]
    shown = latest_drawings([Headline(1, None), *lines, *bar(b"1%", b"2%\r"), Headline(2, 5)], follow=False)
    assert [told(piece) for piece in shown] == [
        "── attempt 1 ──",
        "0 100%",
        "1       ",
        "1 epoch 1",
        "0 2%",
        "── attempt 2, resumed from step 5 ──",
    ]


def test_a_bar_within_another_one_is_drawn_over_too() -> None:
    inner = b"".join(b"\n\rbatch %d%%\x1b[A" % percent for percent in range(5))
    cutter = LineCutter()
    lines = cutter.cut(b"\repoch 1" + inner + b"\repoch 2\nend\n")
    shown = latest_drawings([LogLine(0, "stderr", raw) for raw in lines], follow=False)
    assert [told(piece) for piece in shown] == ["0 epoch 1", "0 epoch 2", "0 end"]


def test_who_follows_a_progress_bar_sees_it_move_now_and_again_and_its_end() -> None:
    times = iter(range(1000))
    lines = bar(*(b"%d" % part for part in range(100)), b"done\n")
    shown = [
        piece.text
        for piece in latest_drawings(lines, follow=True, clock=lambda: next(times) / 10)
        if isinstance(piece, LogLine)
    ]
    assert shown[0] == "0"
    assert shown[-1] == "done"
    assert 2 < len(shown) < 10
