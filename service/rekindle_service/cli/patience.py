"""Reading on while the server is being restarted: jobs outlive it, so whoever watches one should too."""

import time
from collections.abc import Callable
from typing import TypeVar

from rekindle_service.client import NoServerError, ProblemError

T = TypeVar("T")

_PAUSE = 0.5  # seconds between tries


class Patience:
    """Repeats a read for as long as the server is away and says so once, and once more when it is back.

    The first read of all is not repeated: a server that was never there is an error, not an interruption.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._met = False

    def __call__(self, read: Callable[[], T]) -> T:
        away = False
        while True:
            try:
                answer = read()
            except (NoServerError, ProblemError) as error:
                if not (self._met and _passing(error)):
                    raise
                if not away:
                    self._note("The server is away; the job does not need it. Trying again (Ctrl-C ends this).")
                away = True
                time.sleep(_PAUSE)
                continue
            if away:
                self._note("The server is back.")
            self._met = True
            return answer


def _passing(error: NoServerError | ProblemError) -> bool:
    """A server that is starting or stopping answers 503."""
    return isinstance(error, NoServerError) or error.problem.get("status") == 503
