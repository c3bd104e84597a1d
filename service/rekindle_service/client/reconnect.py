"""Following a job through restarts of the server: when to retry a read, and when nothing more will come."""

from collections.abc import Callable

from rekindle.contract import states
from rekindle_service.client.errors import NoServerError, ProblemError
from rekindle_service.client.models import Job, Trial

OnConnectionChange = Callable[[bool], None]
"""Called with False when the server becomes unreachable, and with True when it answers again."""

RETRY_INTERVAL = 0.5  # seconds


class ReconnectPolicy:
    """Retry a server that has answered before; one that never answered is an error."""

    def __init__(self, on_connection_change: OnConnectionChange | None = None) -> None:
        self._on_change = on_connection_change
        self._reachable: bool | None = None  # None: never answered

    def on_success(self) -> None:
        self._set_reachable(True)

    def on_error(self, error: NoServerError | ProblemError) -> None:
        """Retry after ``RETRY_INTERVAL``. Raises ``error`` where no retry would help; a starting server sends 503."""
        is_transient = isinstance(error, NoServerError) or error.problem.get("status") == 503
        if self._reachable is None or not is_transient:
            raise error
        self._set_reachable(False)

    def _set_reachable(self, reachable: bool) -> None:
        changed, self._reachable = self._reachable is (not reachable), reachable
        if changed and self._on_change is not None:
            self._on_change(reachable)


def is_settled(job: Job | Trial) -> bool:
    """Whether the job has ended or is held in the queue, so that only a person can continue it."""
    return states.is_settled(job["state"], job["intent"])
