"""Answers of a rank's debug server, and nonsense of a script that replaced it."""

import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rekindle.contract.debug_socket import Collectives, collectives
from rekindle.contract.run_dir.paths import RankDir


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
def directory(tmp_path: Path) -> Iterator[RankDir]:
    directory = RankDir(tmp_path)
    with socketserver.UnixStreamServer(str(directory.debug_socket), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield directory
        server.shutdown()
        thread.join()


def test_the_collectives_of_all_groups_count_and_it_is_known_whether_one_is_in_flight(
    directory: RankDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    retired, running = {"retired": True}, {"retired": False}
    for enqueued, recorder, expected in (
        ((7, -1), {}, Collectives(7, 7, in_flight=False)),
        ((7, -1), {"entries": [retired, retired]}, Collectives(7, 7, in_flight=False)),
        ((7, -1), {"entries": [retired, running]}, Collectives(7, 7, in_flight=True)),
        ((500, 3), {}, Collectives(last_enqueued=500, total_enqueued=503, in_flight=False)),
    ):
        groups = {str(group): {"last_enqueued_collective": last} for group, last in enumerate(enqueued)}
        monkeypatch.setattr(Answer, "body", json.dumps({"pg_status": groups, **recorder}).encode())
        assert collectives(directory) == expected


def test_nonsense_is_no_answer(directory: RankDir, monkeypatch: pytest.MonkeyPatch) -> None:
    for nonsense in (
        b"",
        b"[" * 100_000,
        b"[]",
        b'{"pg_status": []}',
        b'{"pg_status": {}}',
        b'{"pg_status": {"0": 1}}',
        b'{"pg_status": {"0": {"last_enqueued_collective": 1e999}}}',
        b'{"pg_status": {"0": {"last_enqueued_collective": 1}}, "entries": 3}',
        b'{"pg_status": {"0": {"last_enqueued_collective": 1}}, "entries": [3]}',
    ):
        monkeypatch.setattr(Answer, "body", nonsense)
        assert collectives(directory) is None, nonsense[:80]


def test_without_a_listener_nothing_is_known(tmp_path: Path) -> None:
    assert collectives(RankDir(tmp_path)) is None
