"""The asynchronous client: every method of the blocking one, to be awaited or iterated with ``async for``."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

import httpx2

from rekindle_service.client import calls
from rekindle_service.client.absence import PAUSE, Absence, Tell
from rekindle_service.client.address import Address, find_server
from rekindle_service.client.dialogue import Ask, Dialogue, Pause, all_jobs, looks, patiently
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
_PIECE = 1 << 20  # bytes of an upload


class AsyncClient:
    """As ``Client``, for asyncio and trio. One task at a time."""

    def __init__(self, locate: Callable[[], Address], timeout: float = _TIMEOUT) -> None:
        self._locate = locate
        self._timeout = timeout  # seconds for the next byte of an answer
        self._http: httpx2.AsyncClient | None = None

    @classmethod
    def from_home(cls, settings: Settings | None = None, timeout: float = _TIMEOUT) -> Self:
        """The server that ``REKINDLE_URL`` or the home of this machine names."""
        return cls(lambda: find_server(settings or Settings()), timeout)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        if self._http is not None:
            await self._http.aclose()
            self._http = None

    # --- jobs

    async def submit(self, body: dict[str, Any]) -> Job:
        """Submit once, whatever happens to the connection: to a repeat of the key the server answers the first job."""
        return await self.send(calls.submit(body))

    async def upload_bundle(self, archive: BinaryIO) -> str:
        """Upload a tar.gz from its current position on; gives back the id for ``code.bundle`` of a job."""
        begin = archive.tell()
        try:
            return await self.send(calls.upload_bundle(), content=_pieces(archive))
        except NoServerError:  # the same archive has the same id: once more does no harm
            archive.seek(begin)
            return await self.send(calls.upload_bundle(), content=_pieces(archive))

    async def job(self, job_id: str) -> Job:
        return await self.send(calls.job(job_id))

    def jobs(self, *, state: str | None = None, name: str | None = None, limit: int = 50) -> AsyncIterator[Job]:
        """At most ``limit`` jobs, newest first."""
        return hold_async(self, all_jobs(state, name, limit))

    async def cancel(self, job_id: str) -> Job:
        return await self.send(calls.wish(job_id, "cancel"))

    async def drain(self, job_id: str) -> Job:
        return await self.send(calls.wish(job_id, "drain"))

    async def resume(self, job_id: str) -> Job:
        return await self.send(calls.wish(job_id, "resume"))

    async def delete(self, job_id: str) -> None:
        """Forget a job that is over, with its logs, metrics and snapshots."""
        await self.send(calls.delete(job_id))

    async def inject(self, job_id: str, fault: str, rank: int | None) -> Injection:
        """Have a fault injected; the server picks the rank where the fault needs one and none is given."""
        return await self.send(calls.inject(job_id, fault, rank))

    async def devices(self) -> Devices:
        """Every slot and who holds it."""
        return await self.send(calls.devices())

    # --- what a job has done

    async def attempts(self, job_id: str) -> list[Attempt]:
        """Every attempt, oldest first."""
        return await self.send(calls.attempts(job_id))

    async def time_breakdown(self, job_id: str) -> JobTime:
        """What every second of the job went into."""
        return await self.send(calls.time_breakdown(job_id))

    async def configuration(self, job_id: str) -> Configuration:
        """Where the job works, and what with."""
        return await self.send(calls.configuration(job_id))

    async def ranks(self, job_id: str, attempt: int | None = None) -> list[Rank]:
        """The ranks of one attempt, by default the newest."""
        return await self.send(calls.ranks(job_id, attempt))

    async def stack(self, job_id: str, rank: int) -> str:
        """The Python stacks of all threads of a living rank."""
        return await self.send(calls.stack(job_id, rank))

    async def snapshots(self, job_id: str) -> SnapshotList:
        return await self.send(calls.snapshots(job_id))

    async def metrics(self, job_id: str, name: str) -> list[MetricSeries]:
        """The series of one metric, one for each attempt."""
        return await self.send(calls.metrics(job_id, name))

    async def story(self, job_id: str) -> list[StoryEvent]:
        """All that happened to the job, oldest first."""
        return await self.send(calls.story(job_id))

    async def log(
        self, job_id: str, rank: int, stream: str, attempt: int, *, offset: int, limit: int = 1 << 18
    ) -> LogPart:
        """At most ``limit`` bytes from byte ``offset`` on; empty at the end of what there is so far."""
        return await self.send(calls.log(job_id, rank, stream=stream, attempt=attempt, offset=offset, limit=limit))

    async def log_tail(self, job_id: str, rank: int, stream: str, attempt: int, lines: int) -> LogPart:
        """The last ``lines`` lines."""
        return await self.send(calls.log(job_id, rank, stream=stream, attempt=attempt, tail=lines))

    # --- what goes on through a restart of the server

    def watch(self, job_id: str, tell: Tell | None = None) -> AsyncIterator[Job]:
        """The job now and again, until nothing more will happen to it by itself: it is over, or held."""
        return hold_async(self, patiently(looks(job_id), Absence(tell)))

    async def wait(self, job_id: str, tell: Tell | None = None) -> Job:
        """The job once it is over or held."""
        last: deque[Job] = deque(maxlen=1)
        async for job in self.watch(job_id, tell):
            last.append(job)
        return last.pop()

    def logs(
        self, job_id: str, choice: LogChoice | None = None, *, follow: bool = False, tell: Tell | None = None
    ) -> AsyncIterator[LogLine | Headline]:
        """What the ranks have printed, attempt after attempt; with ``follow`` until no more can come."""
        follower = LogFollower(job_id, choice or LogChoice())
        return hold_async(self, patiently(follower.follow() if follow else follower.so_far(), Absence(tell)))

    async def events(
        self,
        jobs: Collection[str] = (),
        logs: Collection[str] = (),
        *,
        since: int | None = None,
        tell: Tell | None = None,
    ) -> AsyncIterator[Event]:
        """The server's event stream, without end: every job's row, and of ``jobs`` ranks, metrics and ``logs``.

        After a restart of the server it goes on where it was; what is followed in depth begins anew.
        """
        absence = Absence(tell)
        while True:
            try:
                async for event in self._stream(calls.events(jobs, logs, since)):
                    absence.over()
                    since = event.version or since
                    yield event
            except (NoServerError, ProblemError) as error:
                absence.excuse(error)
            await _pause(PAUSE)

    # --- experiments

    async def submit_experiment(self, body: dict[str, Any]) -> Experiment:
        """Submit once, as ``submit`` does. The server copies the code for each job, which may take a while."""
        return await self.send(calls.submit_experiment(body))

    async def experiment(self, experiment_id: str) -> Experiment:
        return await self.send(calls.experiment(experiment_id))

    async def experiments(self, limit: int = 20) -> list[ExperimentSummary]:
        """The newest, newest first."""
        return await self.send(calls.experiments(limit))

    async def builtin_experiments(self) -> list[BuiltIn]:
        return await self.send(calls.builtin_experiments())

    async def cancel_experiment(self, experiment_id: str) -> Experiment:
        return await self.send(calls.cancel_experiment(experiment_id))

    # --- the wire

    async def send(self, call: calls.Call[T], **options: Any) -> T:
        """Carry out a request of ``calls``."""
        try:
            return await self._once(call, options)
        except NoServerError:
            if not call.repeats:
                raise
            return await self._once(call, options)

    async def _once(self, call: calls.Call[T], options: dict[str, Any]) -> T:
        async with self._connected():
            response = await self._connection().request(call.method, call.url, **call.options, **options)
        if response.is_error:
            raise refusal(response)
        return call.read(response)

    async def _stream(self, call: calls.Call[Event]) -> AsyncIterator[Event]:
        async with self._connected(), self._connection().stream(call.method, call.url, **call.options) as response:
            if response.is_error:
                await response.aread()
                raise refusal(response)
            async for sent in httpx2.EventSource(response):
                yield event_of(sent)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[None]:
        try:
            yield
        except httpx2.TransportError as error:
            url = self._connection().base_url
            await self.close()
            raise no_answer(url, error) from error

    def _connection(self) -> httpx2.AsyncClient:
        if self._http is None:
            self._http = httpx2.AsyncClient(**self._locate().http_options(self._timeout))
        return self._http


async def hold_async(client: object, dialogue: Dialogue[T]) -> AsyncIterator[T]:
    """Lead ``dialogue`` with an asynchronous client, as ``dialogue.hold`` does with a blocking one."""
    answer, error = None, None
    while True:
        try:
            step = dialogue.send(answer) if error is None else dialogue.throw(error)
        except StopIteration:
            return
        answer = error = None
        if isinstance(step, Ask):
            try:
                answer = await step.of(client)
            except (NoServerError, ProblemError) as failed:
                error = failed
        elif isinstance(step, Pause):
            await _pause(step.seconds)
        else:
            yield step


async def _pause(seconds: float) -> None:
    import anyio  # here, since the command line starts without an event loop

    await anyio.sleep(seconds)


async def _pieces(archive: BinaryIO) -> AsyncIterator[bytes]:
    """The rest of a file, read where it does not hold up the event loop."""
    import anyio.to_thread

    while piece := await anyio.to_thread.run_sync(archive.read, _PIECE):
        yield piece
