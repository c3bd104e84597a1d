"""The REST interface of a server in another process, without rekindle's own client: what any program would see."""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from e2e.serve_process import ServeProcess


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]  # by name in lower case
    content: bytes

    @property
    def text(self) -> str:
        return self.content.decode()

    def json(self) -> Any:
        return json.loads(self.content)


@dataclass(frozen=True)
class RestApi:
    """Requests with the token of ``server``. A path begins behind ``/api/v1``."""

    server: ServeProcess

    def request(self, method: str, path: str, body: Any = None, **query: object) -> Answer:
        return self._send(method, f"/api/v1{path}" + (f"?{urlencode(query)}" if query else ""), body)

    def outside(self, path: str) -> Answer:
        """GET a path that does not begin with ``/api/v1``."""
        return self._send("GET", path)

    def _send(self, method: str, path: str, body: Any = None) -> Answer:
        url = f"{self.server.url}{path}"
        headers = {"Authorization": f"Bearer {self.server.token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(url, data, headers, method=method)  # noqa: S310  # of our own server
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
                return Answer(answer.status, _lower(answer.headers), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _lower(error.headers), error.read())

    def get(self, path: str, **query: object) -> Any:
        """The JSON of an answer that must be 200."""
        answer = self.request("GET", path, **query)
        assert answer.status == 200, f"{path}: {answer.text}"
        return answer.json()

    def post(self, path: str, body: Any = None) -> Any:
        """The JSON of an answer that must be a success."""
        answer = self.request("POST", path, body)
        assert answer.status in (200, 201, 202), f"{path}: {answer.text}"
        return answer.json()

    def jobs(self) -> dict[str, dict[str, Any]]:
        """Jobs by name in the order of submission, a hundred at most."""
        listed = self.get("/jobs", limit=100)["items"]
        return {job["name"]: job for job in sorted(listed, key=lambda job: job["created_at"])}

    def states(self) -> dict[str, str]:
        return {name: job["state"] for name, job in self.jobs().items()}

    def path(self, name: str) -> str:
        """The path of the job of this name."""
        return f"/jobs/{self.jobs()[name]['id']}"


def _lower(headers: Any) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}
