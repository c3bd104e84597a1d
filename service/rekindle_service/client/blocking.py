"""The blocking client."""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

import httpx2

from rekindle_service.client import calls
from rekindle_service.client.absence import PAUSE, Absence, Tell
from rekindle_service.client.address import Address, find_server
from rekindle_service.client.dialogue import all_jobs, hold, looks, patiently
from rekindle_service.client.event import Event, event_of
from rekindle_service.client.experiment_answers import BuiltIn, Experiment, ExperimentSummary
from rekindle_service.client.job_answers import (
    Attempt,
    Configuration,
    Devices,
    Injection,
    Job,
    JobTime,
    LogPart,
    MetricSeries,
    Rank,
    SnapshotList,
    StoryEvent,
)
from rekindle_service.client.log_follower import Headline, LogChoice, LogFollower, LogLine
from rekindle_service.client.problems import NoServerError, ProblemError, no_answer, refusal
from rekindle_service.config.settings import Settings

T = TypeVar("T")

_TIMEOUT = 30  # seconds


class Client:
    """One server, found again whenever the connection is lost.

    A restarted server may have another port. A caller that catches NoServerError and repeats a read therefore goes
    on as if nothing had happened; ``watch``, ``wait``, ``logs`` and ``events`` do so themselves, and say it to their
    ``tell``. Every method may raise ProblemError and NoServerError. Not thread-safe.
    """

    def __init__(self, locate: Callable[[], Address], timeout: float = _TIMEOUT) -> None:
        self._locate = locate
        self._timeout = timeout  # seconds for the next byte of an answer
        self._http: httpx2.Client | None = None

    @classmethod
    def from_home(cls, settings: Settings | None = None, timeout: float = _TIMEOUT) -> Self:
        """The server that ``REKINDLE_URL`` or the home of this machine names."""
        return cls(lambda: find_server(settings or Settings()), timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    # --- jobs

    def submit(self, body: dict[str, Any]) -> Job:
        """Submit once, whatever happens to the connection: to a repeat of the key the server answers the first job."""
        return self.send(calls.submit(body))

    def upload_bundle(self, archive: BinaryIO) -> str:
        """Upload a tar.gz from its current position on; gives back the id for ``code.bundle`` of a job."""
        begin = archive.tell()
        try:
            return self.send(calls.upload_bundle(), content=archive)
        except NoServerError:  # the same archive has the same id: once more does no harm
            archive.seek(begin)
            return self.send(calls.upload_bundle(), content=archive)

    def job(self, job_id: str) -> Job:
        return self.send(calls.job(job_id))

    def jobs(self, *, state: str | None = None, name: str | None = None, limit: int = 50) -> Iterator[Job]:
        """At most ``limit`` jobs, newest first."""
        return hold(self, all_jobs(state, name, limit))

    def cancel(self, job_id: str) -> Job:
        return self.send(calls.wish(job_id, "cancel"))

    def drain(self, job_id: str) -> Job:
        return self.send(calls.wish(job_id, "drain"))

    def resume(self, job_id: str) -> Job:
        return self.send(calls.wish(job_id, "resume"))

    def delete(self, job_id: str) -> None:
        """Forget a job that is over, with its logs, metrics and snapshots."""
        self.send(calls.delete(job_id))

    def inject(self, job_id: str, fault: str, rank: int | None) -> Injection:
        """Have a fault injected; the server picks the rank where the fault needs one and none is given."""
        return self.send(calls.inject(job_id, fault, rank))

    def devices(self) -> Devices:
        """Every slot and who holds it."""
        return self.send(calls.devices())

    # --- what a job has done

    def attempts(self, job_id: str) -> list[Attempt]:
        """Every attempt, oldest first."""
        return self.send(calls.attempts(job_id))

    def time_breakdown(self, job_id: str) -> JobTime:
        """What every second of the job went into."""
        return self.send(calls.time_breakdown(job_id))

    def configuration(self, job_id: str) -> Configuration:
        """Where the job works, and what with."""
        return self.send(calls.configuration(job_id))

    def ranks(self, job_id: str, attempt: int | None = None) -> list[Rank]:
        """The ranks of one attempt, by default the newest."""
        return self.send(calls.ranks(job_id, attempt))

    def stack(self, job_id: str, rank: int) -> str:
        """The Python stacks of all threads of a living rank."""
        return self.send(calls.stack(job_id, rank))

    def snapshots(self, job_id: str) -> SnapshotList:
        return self.send(calls.snapshots(job_id))

    def metrics(self, job_id: str, name: str) -> list[MetricSeries]:
        """The series of one metric, one for each attempt."""
        return self.send(calls.metrics(job_id, name))

    def story(self, job_id: str) -> list[StoryEvent]:
        """All that happened to the job, oldest first."""
        return self.send(calls.story(job_id))

    def log(self, job_id: str, rank: int, stream: str, attempt: int, *, offset: int, limit: int = 1 << 18) -> LogPart:
        """At most ``limit`` bytes from byte ``offset`` on; empty at the end of what there is so far."""
        return self.send(calls.log(job_id, rank, stream=stream, attempt=attempt, offset=offset, limit=limit))

    def log_tail(self, job_id: str, rank: int, stream: str, attempt: int, lines: int) -> LogPart:
        """The last ``lines`` lines."""
        return self.send(calls.log(job_id, rank, stream=stream, attempt=attempt, tail=lines))

    # --- what goes on through a restart of the server

    def watch(self, job_id: str, tell: Tell | None = None) -> Iterator[Job]:
        """The job now and again, until nothing more will happen to it by itself: it is over, or held."""
        return hold(self, patiently(looks(job_id), Absence(tell)))

    def wait(self, job_id: str, tell: Tell | None = None) -> Job:
        """The job once it is over or held."""
        return deque(self.watch(job_id, tell), maxlen=1).pop()

    def logs(
        self, job_id: str, choice: LogChoice | None = None, *, follow: bool = False, tell: Tell | None = None
    ) -> Iterator[LogLine | Headline]:
        """What the ranks have printed, attempt after attempt; with ``follow`` until no more can come."""
        follower = LogFollower(job_id, choice or LogChoice())
        return hold(self, patiently(follower.follow() if follow else follower.so_far(), Absence(tell)))

    def events(
        self,
        jobs: Collection[str] = (),
        logs: Collection[str] = (),
        *,
        since: int | None = None,
        tell: Tell | None = None,
    ) -> Iterator[Event]:
        """The server's event stream, without end: every job's row, and of ``jobs`` ranks, metrics and ``logs``.

        After a restart of the server it goes on where it was; what is followed in depth begins anew.
        """
        absence = Absence(tell)
        while True:
            try:
                for event in self._stream(calls.events(jobs, logs, since)):
                    absence.over()
                    since = event.version or since
                    yield event
            except (NoServerError, ProblemError) as error:
                absence.excuse(error)
            time.sleep(PAUSE)

    # --- experiments

    def submit_experiment(self, body: dict[str, Any]) -> Experiment:
        """Submit once, as ``submit`` does. The server copies the code for each job, which may take a while."""
        return self.send(calls.submit_experiment(body))

    def experiment(self, experiment_id: str) -> Experiment:
        return self.send(calls.experiment(experiment_id))

    def experiments(self, limit: int = 20) -> list[ExperimentSummary]:
        """The newest, newest first."""
        return self.send(calls.experiments(limit))

    def builtin_experiments(self) -> list[BuiltIn]:
        return self.send(calls.builtin_experiments())

    def cancel_experiment(self, experiment_id: str) -> Experiment:
        return self.send(calls.cancel_experiment(experiment_id))

    # --- the wire

    def send(self, call: calls.Call[T], **options: Any) -> T:
        """Carry out a request of ``calls``."""
        try:
            return self._once(call, options)
        except NoServerError:
            if not call.repeats:
                raise
            return self._once(call, options)

    def _once(self, call: calls.Call[T], options: dict[str, Any]) -> T:
        with self._connected():
            response = self._connection().request(call.method, call.url, **call.options, **options)
        if response.is_error:
            raise refusal(response)
        return call.read(response)

    def _stream(self, call: calls.Call[Event]) -> Iterator[Event]:
        with self._connected(), self._connection().stream(call.method, call.url, **call.options) as response:
            if response.is_error:
                response.read()
                raise refusal(response)
            yield from map(event_of, httpx2.EventSource(response))

    @contextmanager
    def _connected(self) -> Iterator[None]:
        try:
            yield
        except httpx2.TransportError as error:
            url = self._connection().base_url
            self.close()
            raise no_answer(url, error) from error

    def _connection(self) -> httpx2.Client:
        if self._http is None:
            self._http = httpx2.Client(**self._locate().http_options(self._timeout))
        return self._http
