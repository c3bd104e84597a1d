"""The two ways in which a call can fail, rejected or without an answer, and when a read is retried."""

from collections.abc import Callable
from typing import Any, TypedDict

import httpx2


class FieldProblem(TypedDict, total=False):
    field: str
    rule: str
    value: Any
    hint: str | None


class Problem(TypedDict, total=False):
    """RFC 9457: why the server rejected a request."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem]


class ProblemError(Exception):
    """The server rejected the request; it will reject the same request again."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.get("detail") or problem.get("title") or "the server rejected the request")
        self.problem = problem


class NoServerError(Exception):
    """No server answers. One may be started or come back: the same call can succeed later."""


def rejection(response: httpx2.Response) -> ProblemError:
    """The error in a response whose body has been read; a proxy or another program may have sent it."""
    url, status = response.request.url, response.status_code
    if not response.headers.get("content-type", "").startswith("application/problem+json"):
        detail = f"{url} answered {status} without a reason. Is this rekindle?"
        return ProblemError({"title": response.reason_phrase, "status": status, "detail": detail})
    problem: Problem = response.json()
    if status == 401 and "authorization" in response.request.headers:
        problem["detail"] = (
            f"{url.scheme}://{url.netloc.decode()} does not accept this token; it may be revoked or expired. "
            "`rekindle token` on the server's machine prints the current one; write it to a file and set "
            "REKINDLE_TOKEN_FILE."
        )
    return ProblemError(problem)


OnConnectionChange = Callable[[bool, str], None]
"""Called with False when the server becomes unreachable, or answers that it cannot serve a request now, and why (else
""), and with True and "" when it serves requests again."""

RETRY_INTERVAL = 0.5  # seconds


class ReconnectPolicy:
    """Retry a server that has answered before; one that never answered is an error."""

    def __init__(self, on_connection_change: OnConnectionChange | None = None) -> None:
        self._on_change = on_connection_change
        self._state: tuple[bool, str] | None = None  # None: never answered

    def on_success(self) -> None:
        self._change(True, "")

    def on_error(self, error: NoServerError | ProblemError) -> None:
        """Retry after ``RETRY_INTERVAL``. Raises ``error`` where no retry would help; a starting server sends 503."""
        is_transient = isinstance(error, NoServerError) or error.problem.get("status") == 503
        if self._state is None or not is_transient:
            raise error
        self._change(False, str(error) if isinstance(error, ProblemError) else "")

    def _change(self, reachable: bool, why: str) -> None:
        before, self._state = self._state, (reachable, why)
        if before not in (None, self._state) and self._on_change is not None:
            self._on_change(reachable, why)
