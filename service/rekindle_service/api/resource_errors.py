"""What the machine lacks now and may have later, as a refusal to try again: no request fails for it with 500."""

import errno

import structlog
from fastapi import FastAPI, Request
from starlette.responses import Response

from rekindle_service.api.problem_details import ProblemError
from rekindle_service.submission import LACKING

_log = structlog.get_logger(__name__)

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_RETRY = {"Retry-After": "5"}


def install_resource_handlers(app: FastAPI) -> None:
    for kind in (OSError, MemoryError, RuntimeError):
        app.exception_handler(kind)(_respond)


async def _respond(request: Request, error: Exception) -> Response:
    """Raises ``error`` again where it is of another kind."""
    problem = _problem(error)
    if problem is None:
        raise error
    _log.warning("A request was refused", method=request.method, path=request.url.path, error=str(error))
    return problem.response()


def _problem(error: Exception) -> ProblemError | None:
    number = error.errno if isinstance(error, OSError) else None
    if number in _FULL:
        return ProblemError(507, "disk-full", f"the disk is full ({error}): free some space", headers=_RETRY)
    lacking = LACKING.get(number or 0)
    if isinstance(error, MemoryError):
        lacking = LACKING[errno.ENOMEM]
    elif isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        lacking = LACKING[errno.EAGAIN]
    if lacking is None:
        return None
    return ProblemError(503, "busy", f"the server has too few {lacking} now: try again in a moment", headers=_RETRY)
