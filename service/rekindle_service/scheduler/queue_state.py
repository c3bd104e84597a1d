"""The queue as the scheduler knows it: read once, then kept up to date from the change feed."""

import math
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rekindle.contract.states import JobState
from rekindle_service.job_wording import job_label
from rekindle_service.launch.registry import launcher_of
from rekindle_service.scheduler.allocation import QueuePosition
from rekindle_service.scheduler.durations import Durations
from rekindle_service.scheduler.fair_share import QueueIndex
from rekindle_service.store import Store
from rekindle_service.store.queue_store import Shown
from rekindle_service.store.tables import Job

_CHANGES = 500  # rows read at once
_SAME_TIME = 5.0  # seconds by which an estimate may change without being written again
_KNOWN_STATES = 20_000  # of jobs that others wait for
_NOTHING = Shown()


class QueueState:
    """The queued jobs, without reading all of them again after each change, and those that hold slots.

    ``refresh`` brings it up to date; everything else refers to that moment. One thread at a time may call it.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.queued = QueueIndex()
        self.holding: list[Job] = []
        self._left: dict[str, tuple[float, float]] = {}  # time left of those, and when (time.monotonic) it was new
        self.durations = Durations(store.queue.durations)
        self._version: int | None = None  # of the latest change that is in here
        self._states: dict[str, JobState | None] = {}  # of jobs that others wait for, as far as they were asked for
        self._labels: dict[str, str] = {}  # of the same
        self._kinds: Counter[str] = Counter()  # queued jobs by what they wait for, see ``kinds``
        self._shown: dict[str, Shown] = {}  # of queued jobs that show anything

    def refresh(self) -> None:
        """Raises StorageError."""
        if self._version is None:
            self._load()
        self._follow()
        if len(self.queued) != self._store.queue.count():  # rows that were removed, or made from files
            self._load()
            self._follow()
        self.holding = self._store.holding()
        known = {job.id: job.eta_seconds for job in self.holding}
        now, before = time.monotonic(), self._left
        self._left = {
            job_id: before[job_id] if before.get(job_id, (None,))[0] == left else (left, now)
            for job_id, left in known.items()
            if left is not None and math.isfinite(left)
        }

    @property
    def time_left(self) -> dict[str, float]:
        """Seconds until jobs end, by id, as they report or print it, less the time since; below 0 where it is over."""
        now = time.monotonic()
        return {job_id: left - (now - since) for job_id, (left, since) in self._left.items()}

    @contextmanager
    def including(self, job: Job) -> Iterator[None]:
        """Within, the queue has one more job, which is stored nowhere."""
        self._take(job)
        try:
            yield
        finally:
            self._drop(job.id)

    def _load(self) -> None:
        self.queued, self._kinds, self._shown = QueueIndex(), Counter(), {}
        self._states.clear()
        self._labels.clear()
        self._version = self._store.feed.version()
        for job in self._store.queue.jobs():
            self._take(job)

    def _follow(self) -> None:
        while True:
            changes = self._store.feed.changes(self._version or 0, _CHANGES)
            for job in changes.jobs:
                self._take(job)
            self._version = changes.latest
            if len(changes.jobs) < _CHANGES and len(changes.deleted) < _CHANGES:
                return

    def _take(self, job: Job) -> None:
        self._drop(job.id)
        if job.id in self._states:
            self._states[job.id] = job.state
        if job.id in self._labels:
            self._labels[job.id] = job_label(job.name, job.number)
        if job.state is JobState.QUEUED:
            self.queued.put(job)
            self._kinds[_kind(job)] += 1
            shown = Shown(job.queue_position, job.waiting_for, job.estimated_start_at)
            if shown != _NOTHING:
                self._shown[job.id] = shown
        elif job.state is JobState.SUCCEEDED and any(job.id == each.id for each in self.holding):
            self.durations.add(job)  # it held slots at the last refresh

    def _drop(self, job_id: str) -> None:
        before = self.queued.get(job_id)
        if before is not None:
            self.queued.remove(job_id)
            self._kinds[_kind(before)] -= 1
        self._shown.pop(job_id, None)

    @property
    def kinds(self) -> set[str]:
        """Kinds of devices that queued jobs want, and names of launchers whose jobs take no slots."""
        return {kind for kind, count in self._kinds.items() if count}

    def job_state(self, job_id: str) -> JobState | None:
        """The state as ``Store.job_state`` has it, asked once for each job."""
        if job_id not in self._states:
            if len(self._states) >= _KNOWN_STATES:
                self._states.clear()
            self._states[job_id] = self._store.job_state(job_id)
        return self._states[job_id]

    def job_label(self, job_id: str) -> str:
        """The label as ``QueueStore.job_label`` has it, asked once for each job."""
        if job_id not in self._labels:
            if len(self._labels) >= _KNOWN_STATES:
                self._labels.clear()
            self._labels[job_id] = self._store.queue.job_label(job_id)
        return self._labels[job_id]

    # --- what queued jobs show

    def changed_places(self, places: Mapping[str, QueuePosition], now: float) -> dict[str, Shown]:
        """What has to be written so that queued jobs show ``places``, and those that are not named nothing."""
        wanted = {job_id: _shown(place, now) for job_id, place in places.items() if self.queued.get(job_id)}
        wanted.update({job_id: _NOTHING for job_id in self._shown if job_id not in places})
        return {
            job_id: shown for job_id, shown in wanted.items() if not _same(shown, self._shown.get(job_id, _NOTHING))
        }

    def show(self, places: Mapping[str, Shown]) -> None:
        """Write ``places``. Raises StorageError."""
        if not places:
            return
        first, last = self._store.queue.show(places)
        for version, (job_id, shown) in enumerate(places.items(), start=first):
            self._update_row(job_id, shown, version)
            self._shown[job_id] = shown
            if shown == _NOTHING:
                del self._shown[job_id]
        if self._version is not None and first == self._version + 1:
            self._version = last  # nothing else has changed meanwhile: these rows need not be read again

    def _update_row(self, job_id: str, shown: Shown, version: int) -> None:
        if (job := self.queued.get(job_id)) is not None:
            job.version = version
            job.queue_position, job.waiting_for, job.estimated_start_at = shown


def _kind(job: Job) -> str:
    launcher = launcher_of(job.spec)
    return job.spec.device_kind if launcher.takes_slots else launcher.name


def _shown(place: QueuePosition, now: float) -> Shown:
    at = None if place.starts_in is None else now + place.starts_in
    return Shown(place.position, place.waiting_for, at)


def _same(one: Shown, other: Shown) -> bool:
    """Whether it is not worth a write: an estimate is no better than a few seconds."""
    if one[:2] != other[:2]:
        return False
    at, before = one.estimated_start_at, other.estimated_start_at
    return at == before or (at is not None and before is not None and abs(at - before) < _SAME_TIME)
