"""The two ways in which a call can fail: the server said no, or there was none."""

from typing import Any, TypedDict

import httpx2


class FieldProblem(TypedDict, total=False):
    field: str
    rule: str
    value: Any
    hint: str | None


class Problem(TypedDict, total=False):
    """RFC 9457: why the server did not do it."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem]


class ProblemError(Exception):
    """The server understood and said no; the same request will be refused again."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.get("detail") or problem.get("title") or "the server refused")
        self.problem = problem


class NoServerError(Exception):
    """No server answers. It may be started or come back: the same call can succeed later."""


def is_passing(error: NoServerError | ProblemError) -> bool:
    """Whether trying again may help: a server that is starting or stopping answers 503."""
    return isinstance(error, NoServerError) or error.problem.get("status") == 503


def no_answer(url: object, error: httpx2.TransportError) -> NoServerError:
    return NoServerError(f"The server at {url} does not answer ({error or type(error).__name__}).")


def refusal(response: httpx2.Response) -> ProblemError:
    """Why an answer whose body has been read is an error."""
    return ProblemError(_problem(response))


def _problem(response: httpx2.Response) -> Problem:
    """The problem document, or one made up for an answer that has none (a proxy's page, another program's port)."""
    url, status = response.request.url, response.status_code
    if not response.headers.get("content-type", "").startswith("application/problem+json"):
        detail = f"{url} answered {status} without saying why. Is this rekindle?"
        return {"title": response.reason_phrase, "status": status, "detail": detail}
    problem: Problem = response.json()
    if status == 401:
        detail = (
            f"{url.scheme}://{url.netloc.decode()} does not accept this token (any more). `rekindle token` on the "
            "server's machine prints the right one; REKINDLE_TOKEN takes it."
        )
        problem = {**problem, "detail": detail}
    return problem
