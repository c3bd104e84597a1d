"""What a rank's debug server may answer, and what a script may have put in its place."""

import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.contract.debug_socket import Collectives, collectives
from rekindle.contract.run_dir.paths import RankDir

_GROUPS = {"0": {"last_enqueued_collective": 7}, "1": {"last_enqueued_collective": -1}}


class Answer(http.server.BaseHTTPRequestHandler):
    body = b""

    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.body)

    def address_string(self) -> str:
        return "rank"

    def log_message(self, *_: object) -> None:
        """Silence."""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RankDir]:
    folder = RankDir(tmp_path)
    with socketserver.UnixStreamServer(str(folder.debug_socket), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("entries", "in_flight"),
    [
        ({}, False),
        ({"entries": [{"retired": True}, {"retired": True}]}, False),
        ({"entries": [{"retired": True}, {"retired": False}]}, True),
    ],
)
def test_a_rank_that_stands_in_a_collective_is_distinguished_from_one_that_does_not(
    folder: RankDir, monkeypatch: pytest.MonkeyPatch, entries: dict[str, object], in_flight: bool
) -> None:
    monkeypatch.setattr(Answer, "body", json.dumps({"pg_status": _GROUPS, **entries}).encode())
    assert collectives(folder) == Collectives(7, 7, in_flight)


@pytest.mark.parametrize(
    "nonsense",
    [
        b"",
        b"[" * 100_000,
        b"[]",
        b'{"pg_status": []}',
        b'{"pg_status": {}}',
        b'{"pg_status": {"0": 1}}',
        b'{"pg_status": {"0": {"last_enqueued_collective": 1e999}}}',
        b'{"pg_status": {"0": {"last_enqueued_collective": 1}}, "entries": 3}',
        b'{"pg_status": {"0": {"last_enqueued_collective": 1}}, "entries": [3]}',
    ],
)
def test_nonsense_is_no_answer(folder: RankDir, monkeypatch: pytest.MonkeyPatch, nonsense: bytes) -> None:
    monkeypatch.setattr(Answer, "body", nonsense)
    assert collectives(folder) is None


def test_the_collectives_of_all_groups_count(folder: RankDir, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {str(number): {"last_enqueued_collective": begun} for number, begun in enumerate((500, 3))}
    monkeypatch.setattr(Answer, "body", json.dumps({"pg_status": counts}).encode())
    assert collectives(folder) == Collectives(last_enqueued=500, total_enqueued=503, in_flight=False)


def test_where_nobody_listens_nothing_is_known(tmp_path: Path) -> None:
    assert collectives(RankDir(tmp_path)) is None
