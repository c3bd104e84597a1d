"""Going on while the server is being restarted: jobs outlive it, so whoever watches one should too."""

from collections.abc import Callable

from rekindle_service.client.problems import NoServerError, ProblemError, is_passing

Tell = Callable[[bool], None]
"""Is told False when the server has gone away, and True when it is back."""

PAUSE = 0.5  # seconds between tries


class Absence:
    """Tells a server that is away from one that was never there, which is an error and no interruption."""

    def __init__(self, tell: Tell | None = None) -> None:
        self._tell = tell
        self._met = False
        self._away = False

    def over(self) -> None:
        """The server has answered."""
        self._met = True
        self._set(away=False)

    def excuse(self, error: NoServerError | ProblemError) -> None:
        """Try again after ``PAUSE``. Raises ``error`` where that would not help."""
        if not (self._met and is_passing(error)):
            raise error
        self._set(away=True)

    def _set(self, *, away: bool) -> None:
        if away != self._away:
            self._away = away
            if self._tell is not None:
                self._tell(not away)
