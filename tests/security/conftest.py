import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from api_server import TOKEN, ApiServer, api_server
from rekindle_service.http_server import HttpServer, listen

BEARER = {"Authorization": f"Bearer {TOKEN}"}


@dataclass(frozen=True)
class Served:
    """The application behind the real HTTP server, in this process."""

    server: ApiServer
    address: tuple[str, int]

    def request(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] = BEARER
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """The answer and its content. The path is sent as it is."""
        connection = http.client.HTTPConnection(*self.address, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def status(self, method: str, path: str, body: Any = None, headers: dict[str, str] = BEARER) -> int:
        return self.request(method, path, body, headers)[0].status


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    ready = threading.Event()
    with api_server(tmp_path_factory.mktemp("served")) as server, listen("127.0.0.1", 0) as listener:
        running = HttpServer(server.app, listener, server.state.stopping, ready.set)
        thread = threading.Thread(target=running.run_until_stopped)
        thread.start()
        ready.wait()
        yield Served(server, listener.getsockname()[:2])
        running.stop()
        thread.join()


@pytest.fixture(scope="module")
def job(served: Served, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    code: Path = tmp_path_factory.mktemp("code")
    return served.server.submit(code)
