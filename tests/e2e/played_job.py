"""A running job of which the test plays the keeper and all ranks.

Everything is real but the training: a row in the server's database, a held keeper lock, a journal, and rank directories
in the formats of the contract. So a test decides what happens, to the byte, and when.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlmodel import col, delete

from e2e.waiting import until
from rekindle.contract.files import append_line, read_json, write_json
from rekindle.contract.job import JobSpec, RunIntent
from rekindle.contract.job_options import TargetKind
from rekindle.contract.locks import ExclusiveLock, lock_holder
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.processes import ProcessIdentity
from rekindle.contract.run_dir.attempt_samples import RankUsage, UsageSample
from rekindle.contract.run_dir.journal import Journal, RecordType
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.rank_records import MetricPoint, RankError, RankState, RankStatus
from rekindle.contract.run_dir.snapshot_dir import SnapshotScore
from rekindle.contract.states import JobIntent, JobState
from rekindle_service.config.home import Home, new_job_id
from rekindle_service.jobs.submitter import new_job
from rekindle_service.store import Store
from rekindle_service.store.tables import Event, Job
from snapshot_files import write_snapshot

_STEPS = 1000


class PlayedJob:
    """Holds the keeper's lock from the moment that the row exists, so the server takes it for a live job."""

    def __init__(
        self,
        home: Path,
        name: str,
        *,
        ranks: int = 2,
        args: list[str] | None = None,
        env: dict[str, str] | None = None,
        python: str = "/usr/bin/python3",
        **options: object,
    ) -> None:
        """``options``: further ones of the job's ``JobSpec``."""
        self.id = new_job_id()
        self.ranks = ranks
        self._python = python
        self.attempt = 0
        self._resumed_from_step: int | None = None
        self.run_dir: RunDir = Home(home).run_dir(self.id)
        self._devices = [f"cpu:{rank}" for rank in range(ranks)]
        spec = self._make_run_dir(name, args or [], env or {}, options)
        self._lock = ExclusiveLock(self.run_dir.keeper_lock)
        self._journal = Journal(self.run_dir.journal)
        self._journal.write(RecordType.KEEPER_STARTED, run=1, keeper=_identity())
        self._server_lock = Home(home).server_lock
        self._store = Store(Home(home).database)
        self.number = self._store.add_job(self._row(spec)).number
        self._announce(home)

    def _announce(self, home: Path) -> None:
        """Have a server that runs change the row, whose jobs in memory are those that it has written itself."""
        server = read_json(home / "server.json")
        if not isinstance(server, dict):
            return
        headers = {
            "Authorization": f"Bearer {(home / 'token').read_text().strip()}",
            "Content-Type": "application/json",
        }
        url = f"{server['url']}/api/v1/jobs/{self.id}"
        request = urllib.request.Request(url, b'{"note": ""}', headers, method="PATCH")  # noqa: S310  # our own server
        with suppress(urllib.error.URLError):
            urllib.request.urlopen(request, timeout=30).close()  # noqa: S310
        with self._store.writing() as session:
            session.execute(delete(Event).where(col(Event.job_id) == self.id, col(Event.kind) == "changed"))

    def _make_run_dir(self, name: str, args: list[str], env: dict[str, str], options: Mapping[str, object]) -> JobSpec:
        for directory in (self.run_dir.root, self.run_dir.code, self.run_dir.snapshots, self.run_dir.attempts):
            directory.mkdir(parents=True)
        spec = JobSpec(
            name=name,
            kind=TargetKind.SCRIPT,
            target="train.py",
            python=self._python,
            device="cpu",
            min_ranks=self.ranks,
            max_ranks=self.ranks,
            args=args,
            env=env,
            **options,  # type: ignore[arg-type]
        )
        write_json(self.run_dir.spec, spec.to_json())
        write_json(self.run_dir.intent, RunIntent(JobIntent.RUN, 1, self._devices).to_json())
        return spec

    def _row(self, spec: JobSpec) -> Job:
        return new_job(
            self.id,
            spec,
            state=JobState.STARTING,
            run=1,
            devices=self._devices,
            created_at=time.time(),
            started_at=time.time(),
            note="to be removed by the server",
        )

    def begin_attempt(self, resumed_from_step: int | None = None) -> None:
        """The next launch, up to the point where every rank runs."""
        self.attempt += 1
        self._resumed_from_step = resumed_from_step
        self._journal.write(
            RecordType.ATTEMPT_STARTED,
            attempt=self.attempt,
            run=1,
            world_size=self.ranks,
            devices=self._devices,
        )
        for rank in range(self.ranks):
            self._rank_root(rank).mkdir(parents=True)
            self.report(rank, step=resumed_from_step)
        processes = [{"rank": rank, **_identity()} for rank in range(self.ranks)]
        self._journal.write(RecordType.RANKS_RUNNING, attempt=self.attempt, ranks=processes)
        if resumed_from_step is not None:
            self.resume(resumed_from_step)
        self._await_server()

    def _await_server(self) -> None:
        """Return when the server, if one runs, has read of the attempt: a request before that finds the one before."""

        def has_read() -> bool:
            job = self._store.job(self.id)
            return lock_holder(self._server_lock) is None or job is None or job.attempt >= self.attempt

        until(has_read, f"the server has read of attempt {self.attempt} of job {self.id}", 60)

    def stall(self, sentence: str | None, since: float = 0.0, left: float = 0.0) -> None:
        """No progress since then, in seconds since the epoch; None: it makes progress again."""
        times = {} if sentence is None else {"since": since, "hung_at": time.time() + left, "rank": 1}
        self._journal.write(RecordType.STALLED, attempt=self.attempt, sentence=sentence, **times)

    def resume(self, step: int) -> None:
        """The ranks have restored a snapshot, and say so."""
        self._resumed_from_step = step
        self._journal.write(RecordType.RESUMED, attempt=self.attempt, step=step)
        for rank in range(self.ranks):
            self.report(rank, step=step)

    def end_attempt(self, outcome: Outcome, *, last_step: int, snapshot_step: int | None = None) -> None:
        self._journal.write(
            RecordType.ATTEMPT_ENDED,
            attempt=self.attempt,
            outcome=outcome.to_json(),
            resumed_from_step=self._resumed_from_step,
            last_step=last_step,
            snapshot_step=snapshot_step,
        )

    def exit_rank(self, rank: int, *, exit_code: int) -> None:
        self._journal.write(RecordType.RANK_EXITED, attempt=self.attempt, rank=rank, exit_code=exit_code)

    def raise_in(self, rank: int, exception: str, message: str, *, source: str, line: int) -> Outcome:
        """The script has ``source``, at whose ``line`` a library raises; the log, the record and the outcome of it."""
        (self.run_dir.code / "train.py").write_text(source)
        frames = f'  File "{self.run_dir.code}/train.py", line {line}, in main\n    {source.splitlines()[line - 1]}\n'
        frames += '  File "/lib/torch/nn.py", line 7, in forward\n    raise error\n'
        text = f"Traceback (most recent call last):\n{frames}{exception}: {message}\n"
        self.write(text.encode(), rank=rank, stream="stderr")
        error = RankError(rank, exception, message, "train.py", line, text, None, time.time(), time.monotonic())
        write_json(self._rank_root(rank) / "error.json", error.to_json())
        sentence = f"Rank {rank} raised {exception} at train.py:{line}: {message.splitlines()[0]}"
        return Outcome(
            OutcomeClass.USER_ERROR,
            sentence,
            rank=rank,
            exception=exception,
            file="train.py",
            line=line,
            evidence={"traceback": text},
        )

    def retry_in(self, seconds: float) -> None:
        self._journal.write(
            RecordType.RETRY_DECIDED,
            attempt=self.attempt,
            reason="it had made progress",
            delay=seconds,
            next_try_at=time.time() + seconds,
        )

    def end(self, state: JobState, outcome: Outcome) -> None:
        self._journal.write(RecordType.JOB_ENDED, run=1, state=state, reason=outcome.message, outcome=outcome.to_json())

    def report(
        self, rank: int, *, step: int | None, snapshot_policy: str | None = None, notice: str | None = None
    ) -> None:
        """The status of a rank, whose process is the test's own."""
        identity = ProcessIdentity.own()
        status = RankStatus(
            rank=rank,
            local_rank=rank,
            world_size=self.ranks,
            host="here",
            pid=identity.pid,
            start_time=identity.start_time,
            device=self._devices[rank],
            state=RankState.RUNNING,
            phase="train",
            epoch=0,
            epochs=10,
            step=step,
            steps=_STEPS,
            steps_per_second=10.0,
            snapshot_policy=snapshot_policy,
            notice=notice,
            updated_at=time.time(),
        )
        write_json(self._rank_root(rank) / "status.json", status.to_json(), durable=False)

    def metric(self, step: int, *, epoch: int = 0, **values: float | None) -> None:
        point = MetricPoint(step=step, epoch=epoch, at=time.time(), values=dict(values))
        append_line(self.run_dir.attempt(self.attempt).rank(0).metrics, point.to_json())

    def sample(
        self, phase: str, step: int, *waiting: float, hang_timeout: float = 30.0, without_progress: float = 1.0
    ) -> None:
        """What the keeper records every few seconds; ``waiting``: share of the time, by rank."""
        ranks = [RankUsage(rank, 50.0, 1 << 20, 0, 0, phase, step, share) for rank, share in enumerate(waiting)]
        sample = UsageSample(time.time(), ranks, [], hang_timeout, without_progress)
        append_line(self.run_dir.attempt(self.attempt).usage, sample.to_json(), durable=False)

    def write(self, data: bytes, *, rank: int = 0, stream: str = "stdout") -> None:
        with self.run_dir.attempt(self.attempt).rank(rank).log(stream).open("ab") as file:
            file.write(data)

    def snapshot(self, step: int, score: SnapshotScore | None = None) -> Path:
        return write_snapshot(
            self.run_dir.snapshots,
            step,
            epoch=0,
            world_size=self.ranks,
            job_id=self.id,
            created_at=time.time(),
            score=score,
        )

    def wanted(self) -> str:
        """What the server wants of this job now."""
        return str(json.loads(self.run_dir.intent.read_text())["want"])

    def close(self) -> None:
        """Release everything; a job that still runs is cancelled, so that nothing starts a keeper for it."""
        self.end(JobState.CANCELLED, _cancelled())
        self._store.close()
        self._lock.release()

    def _rank_root(self, rank: int) -> Path:
        return self.run_dir.attempt(self.attempt).rank(rank).root


Play = Callable[..., PlayedJob]
"""Makes a job that the test plays, of a name and whatever else ``PlayedJob`` takes."""


@contextmanager
def played_jobs(home: Path) -> Iterator[Play]:
    """What makes jobs in this home; they are closed in the end."""
    jobs: list[PlayedJob] = []

    def make(name: str = "digits", **options: object) -> PlayedJob:
        jobs.append(PlayedJob(home, name, **options))
        return jobs[-1]

    try:
        yield make
    finally:
        for job in jobs:
            job.close()


def _cancelled() -> Outcome:
    return Outcome(OutcomeClass.CANCELLED, "cancelled on request", retryable=False)


def _identity() -> dict[str, Any]:
    identity = ProcessIdentity.own()
    return {"pid": identity.pid, "start_time": identity.start_time, "boot_id": identity.boot_id}
