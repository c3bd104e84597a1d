"""One thread that speaks with Slurm: a single ``squeue`` for all jobs per poll, and what is requested in between."""

import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from rekindle_service.launch.slurm.slurm_commands import (
    RefusedError,
    SlurmCommands,
    SlurmError,
    SlurmJob,
    UnreachableError,
)

_log = structlog.get_logger(__name__)

_CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Listing:
    """The latest answer of Slurm. Times of time.monotonic()."""

    asked_at: float = float("-inf")  # what happened before this is in ``jobs``
    jobs: Mapping[str, SlurmJob] = field(default_factory=dict)  # by name
    by_job: Mapping[str, Sequence[SlurmJob]] = field(default_factory=dict)  # by the id of rekindle's job
    problem: str | None = None  # why Slurm does not answer now
    problem_since: float = 0.0  # seconds since the epoch


_NOTHING = Listing()


@dataclass(frozen=True, slots=True)
class SbatchResult:
    """What became of one ``sbatch``. ``at``: of time.monotonic(), when it had ended."""

    at: float
    slurm_id: int | None = None
    error: SlurmError | None = None


class SlurmPoller:
    """Thread-safe. Nothing here waits for Slurm but the thread itself.

    Requests are carried out in their order, and each poll follows those before it. While Slurm does not answer,
    requests wait.
    """

    def __init__(self, commands: SlurmCommands, interval: float) -> None:
        self._commands, self._interval = commands, interval
        self._requests: deque[Callable[[], None]] = deque()
        self._submitting: set[str] = set()
        self._submissions: dict[str, SbatchResult] = {}
        self._cancelling: set[int] = set()
        self._wanted = False  # whether anybody looks at the listing
        self._stopping = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.listing = _NOTHING

    # --- what others call

    def want(self, wanted: bool) -> None:  # a property with an effect
        """Poll from now on, or not any more."""
        if wanted == self._wanted:
            return
        with self._changed:
            self._wanted = wanted
            self._start()
            self._changed.notify_all()

    def submit(self, name: str, options: Sequence[str], script: Path) -> None:
        """Give Slurm the job ``name``; see ``submission``."""
        with self._changed:
            self._submitting.add(name)
            self._submissions.pop(name, None)
        self._request(lambda: self._submit(name, options, script))

    def submitting(self, name: str) -> bool:
        return name in self._submitting

    def submission(self, name: str) -> SbatchResult | None:
        """What became of the job ``name``; None where this server has not submitted it, or is about to."""
        return self._submissions.get(name)

    def cancel(self, slurm_id: int) -> None:
        """Ask Slurm to end it, unless that is requested already."""
        with self._changed:
            if slurm_id in self._cancelling:
                return
            self._cancelling.add(slurm_id)
        self._request(lambda: self._cancel(slurm_id))

    def start_now(self, slurm_id: int) -> None:
        self._request(lambda: self._commands.start_now(slurm_id))

    def exclude(self, slurm_id: int, hosts: Sequence[str]) -> None:
        self._request(lambda: self._commands.exclude(slurm_id, hosts))

    def forget(self, names: set[str]) -> None:
        """Forget all submissions but these."""
        with self._changed:
            for name in self._submissions.keys() - names:
                del self._submissions[name]

    def close(self) -> None:
        """End after the current command; one that takes long is left to itself: what it does is found by its name."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    # --- the thread

    def _request(self, request: Callable[[], None]) -> None:
        with self._changed:
            self._requests.append(request)
            self._start()
            self._changed.notify_all()

    def _start(self) -> None:
        if self._thread is None and not self._stopping:
            self._thread = threading.Thread(target=self._run, name="slurm", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stopping:
            self.poll()
            self._wait(time.monotonic() + self._interval)

    def _wait(self, next_poll: float) -> None:
        """Until there is work, or until ``next_poll`` (time.monotonic()) while anything is expected of Slurm."""
        with self._changed:
            while not self._has_work():
                left = next_poll - time.monotonic() if self._wanted or self._requests else None
                if left is not None and left <= 0:
                    return
                self._changed.wait(left)

    def _has_work(self) -> bool:
        return self._stopping or (bool(self._requests) and self.listing.problem is None) or self._is_new()

    def _is_new(self) -> bool:
        """Whether somebody has begun to look, and has not had an answer."""
        return self._wanted and self.listing is _NOTHING

    def poll(self) -> None:
        """Carry out what was requested, then ask once for all jobs. Only the thread calls it, or a test without it."""
        while self._requests and not self._stopping and self.listing.problem is None:
            request = self._requests.popleft()
            try:
                request()
            except UnreachableError as error:
                self._requests.appendleft(request)
                self._note_problem(str(error))
            except RefusedError as error:
                _log.warning("Slurm has refused a request", error=str(error))
            except Exception as error:  # noqa: BLE001  # the thread must outlive any error
                _log.error("A request to Slurm failed", exc_info=error)
        if not self._stopping:
            self._list()

    def _list(self) -> None:
        asked_at = time.monotonic()
        try:
            jobs = self._commands.list_jobs()
        except UnreachableError as error:
            self._note_problem(str(error))
            return
        if self.listing.problem is not None:
            _log.info("Slurm answers again")
        self.listing = Listing(asked_at, jobs, _by_job(jobs.values()))

    def _note_problem(self, problem: str) -> None:
        known = self.listing
        if known.problem is None:
            _log.warning("Slurm does not answer", error=problem)
        since = time.time() if known.problem is None else known.problem_since
        self.listing = replace(known, problem=problem, problem_since=since)

    def _submit(self, name: str, options: Sequence[str], script: Path) -> None:
        try:
            slurm_id = self._commands.submit(options, script)
            outcome = SbatchResult(time.monotonic(), slurm_id)
        except SlurmError as error:
            outcome = SbatchResult(time.monotonic(), error=error)
            if isinstance(error, UnreachableError):
                self._note_problem(str(error))
        except Exception as error:
            outcome = SbatchResult(time.monotonic(), error=UnreachableError(repr(error)))
            raise
        finally:
            with self._changed:
                self._submissions[name] = outcome
                self._submitting.discard(name)

    def _cancel(self, slurm_id: int) -> None:
        try:
            self._commands.cancel([slurm_id])
        finally:
            with self._changed:
                self._cancelling.discard(slurm_id)


def _by_job(jobs: Iterable[SlurmJob]) -> dict[str, list[SlurmJob]]:
    grouped: defaultdict[str, list[SlurmJob]] = defaultdict(list)
    for job in jobs:
        grouped[job.name.split("-")[1]].append(job)
    return dict(grouped)
