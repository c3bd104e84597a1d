"""Reading on while the server is being restarted, and saying so."""

import time
from collections.abc import Callable
from typing import TypeVar

from rekindle_service.client import Absence, NoServerError, ProblemError, Tell

T = TypeVar("T")

_PAUSE = 0.5  # seconds between tries


def teller(note: Callable[[str], None]) -> Tell:
    """Says in words that the server has gone away, and that it is back."""

    def tell(back: bool) -> None:
        away = "The server is away; the job does not need it. Trying again (Ctrl-C ends this)."
        note("The server is back." if back else away)

    return tell


class Patience:
    """Repeats a read for as long as the server is away and says so once, and once more when it is back.

    The first read of all is not repeated: a server that was never there is an error, not an interruption.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._absence = Absence(teller(note))

    def __call__(self, read: Callable[[], T]) -> T:
        while True:
            try:
                answer = read()
            except (NoServerError, ProblemError) as error:
                self._absence.excuse(error)
                time.sleep(_PAUSE)
            else:
                self._absence.over()
                return answer
