"""A stand-in for torch's debug server in a rank, and for what its flight recorders answer.

``tests/integration/test_recorders.py`` compares the form with that of the installed torch.
"""

import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from rekindle.contract.run_dir.paths import RankDir


class Answer(http.server.BaseHTTPRequestHandler):
    body = b""
    by_request: ClassVar[dict[str, bytes]] = {}  # what else is answered, by a part of the request

    def do_POST(self) -> None:
        self.send_response(200)
        self.end_headers()
        known = [body for part, body in self.by_request.items() if part in self.path]
        self.wfile.write(known[0] if known else self.body)

    def address_string(self) -> str:
        return "rank"

    def log_message(self, *_: object) -> None:
        """Silence."""


@contextmanager
def served(directory: RankDir) -> Iterator[None]:
    """Answer at the socket of ``directory`` meanwhile."""
    with socketserver.UnixStreamServer(str(directory.debug_socket), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def dump(*entries: tuple[int, str, bool], last: int | None = None) -> bytes:
    """What a recorder answers: of each entry the time, the name with its backend, and whether it has ended."""
    recorded = [
        {
            "time_created_ns": created, "profiling_name": name, "retired": retired, "collective_seq_id": number,
            "is_p2p": False, "process_group": ["0", "default_pg"], "input_sizes": [[3]], "input_dtypes": ["Float"],
        }
        for number, (created, name, retired) in enumerate(entries, 1)
    ]  # fmt: skip
    status = {} if last is None else {"0": {"last_enqueued_collective": str(last)}}
    return json.dumps({"pg_status": status, "entries": recorded, "version": "2.10"}).encode()
