"""The two ways in which a call can fail: the server rejected it, or no server answered."""

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
