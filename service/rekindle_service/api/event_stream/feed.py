"""What one client of the event stream has not received yet: changes of all jobs, and followed jobs in depth."""

import time
from dataclasses import dataclass

from fastapi.sse import ServerSentEvent

from rekindle_service.api.dependencies import AppState
from rekindle_service.api.event_stream.job_feed import JobFeed, LogSubscription, make_event
from rekindle_service.api.serializers import job_public
from rekindle_service.store import Store

_MAX_CHANGES = 100


@dataclass(frozen=True, slots=True)
class RowChanges:
    """Events of all changes of rows up to the version ``latest``."""

    latest: int
    events: list[ServerSentEvent]


class Feed:
    """Pull-based: nothing is queued for a client, so one that reads slowly or not at all costs no memory.

    Each poll reads rows and files as they are. Clients that poll at about the same time share the results, serialised
    once. Not thread-safe: one poll at a time.
    """

    def __init__(self, state: AppState, jobs: dict[str, list[LogSubscription]], since: int | None) -> None:
        """Follows ``jobs``, by id, with some of their logs. ``since``: the last version that the client received."""
        self._state = state
        self._jobs = [JobFeed(state, job_id, logs) for job_id, logs in jobs.items()]
        latest = state.store.version()
        self.version = latest if since is None else min(since, latest)
        self._polled_at = time.monotonic()

    def poll(self) -> list[ServerSentEvent]:
        """The events since the last poll, oldest first; an id is the version up to which all changes were sent."""
        store, since = self._state.store, self.version
        changes = self._state.polls.get(("rows", since), lambda: _row_changes(store, since), self._polled_at)
        self.version = changes.latest
        events = list(changes.events)
        for job in self._jobs:
            events += job.poll(self._polled_at)
        self._polled_at = time.monotonic()
        return events


def _row_changes(store: Store, since: int) -> RowChanges:
    changes = store.changes(since, _MAX_CHANGES)
    events = [make_event("deleted", {"id": job_id}) for job_id in changes.deleted]
    events += [make_event("job", job_public(job), str(job.version)) for job in changes.jobs]
    return RowChanges(changes.latest, events)
