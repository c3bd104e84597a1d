"""Every request of the API as a method."""

# Answers are JSON, which answers.py describes as the server declares it.
# mypy: disable-error-code="no-any-return"

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import quote

from rekindle_service.client import answers
from rekindle_service.client.api_connection import LONG_TIMEOUT, ApiConnection, api_call, api_stream, drop_unset
from rekindle_service.client.client_errors import NoServerError

MAX_LOG_BYTES = 1 << 20  # in one answer of the server
_PAGE_SIZE = 100  # jobs


@dataclass(frozen=True, slots=True)
class LogBytes:
    """Raw bytes of a log; the next chunk starts at ``next_offset``.

    ``removed``: number of requested bytes that are gone, since the log was larger than it may be.
    """

    data: bytes
    next_offset: int
    removed: int = 0


class ApiCalls(ApiConnection):
    """Every method may raise ProblemError and NoServerError. Use one client in one task at a time."""

    # --- jobs

    @api_call
    async def submit(self, body: dict[str, Any]) -> answers.Job:
        """Submit one job, even over a lost connection: a repeated request returns the first one's job."""
        return await self._create("/jobs", body)

    @api_call
    async def validate(self, body: dict[str, Any], *, jobs: int = 1) -> answers.ValidatedJob:
        """What would become of ``body`` if it were submitted, or of ``jobs`` such jobs; nothing of it is stored."""
        params = {"jobs": jobs}
        return await self.request("POST", "/jobs/validate", json=body, params=params, timeout=LONG_TIMEOUT)

    @api_call
    async def upload_bundle(self, archive: BinaryIO) -> str:
        """Upload a tar.gz from its current position; returns the id for ``code.bundle`` of a job."""
        start = archive.tell()
        options: dict[str, Any] = {"headers": {"Content-Type": "application/gzip"}, "timeout": LONG_TIMEOUT}
        try:
            response = await self._connection.send("POST", "/bundles", upload=archive, **options)
        except NoServerError:  # the same archive has the same id: uploading it again is safe
            archive.seek(start)
            response = await self._connection.send("POST", "/bundles", upload=archive, **options)
        return str(response.json()["id"])

    @api_call
    async def job(self, job_id: str) -> answers.Job:
        """The job with this id."""
        return await self._get(_job(job_id))

    @api_call
    async def find_job(self, reference: str) -> answers.Job:
        """The job with this id, number or name (the latest of it), or the one whose id starts with it."""
        sendable = reference.encode(errors="replace").decode()  # a word of a command line may be no UTF-8
        return await self._get("/jobs/resolve", ref=sendable)

    @api_call
    async def complete_job(self, prefix: str) -> list[answers.Job]:
        """The latest job of each name that starts with ``prefix``, and those whose id does, from 4 characters on."""
        return await self._items("/jobs/completions", prefix=prefix.encode(errors="replace").decode())

    @api_stream
    async def jobs(
        self,
        *,
        state: str | None = None,
        name: str | None = None,
        q: str | None = None,
        owner: str | None = None,
        limit: int = 50,
    ) -> AsyncGenerator[answers.Job, None]:
        """List up to ``limit`` jobs, latest first; ``q``: a filter line, as in ``state:failed lr>0.01 resnet``."""
        chosen = {"state": state, "name": name, "q": q, "owner": owner}
        cursor = None
        while limit > 0:
            page = await self._get("/jobs", **chosen, limit=min(limit, _PAGE_SIZE), cursor=cursor)
            for job in page["items"]:
                yield job
            limit, cursor = limit - len(page["items"]), page["next"]
            if cursor is None:
                return

    @api_call
    async def overview(self, *, limit: int = 20) -> answers.Overview:
        """What needs a person, what runs, what is next to start, and what has ended: ``limit`` rows of each."""
        return await self._get("/overview", limit=limit)

    @api_call
    async def queue(self, *, owner: str | None = None, limit: int = 50, cursor: str | None = None) -> answers.Queue:
        """One page of the queue, next job first, and what each owner has used."""
        return await self._get("/queue", owner=owner, limit=limit, cursor=cursor)

    @api_call
    async def cancel(self, job_id: str) -> answers.Job:
        """Stop the job; its snapshots and logs are kept."""
        return await self.request("POST", _job(job_id, "cancel"))

    @api_call
    async def drain(self, job_id: str) -> answers.Job:
        """Save a snapshot, release the slots, and hold the job in the queue until ``resume``."""
        return await self.request("POST", _job(job_id, "drain"))

    @api_call
    async def resume(self, job_id: str, *, snapshot: int | None = None, checkpoint: str | None = None) -> answers.Job:
        """Release a held job, or continue one that has ended: from its latest snapshot, or from what is given.

        ``snapshot``: the step of one; ``checkpoint``: the path of the script's own, as the job lists it.
        """
        chosen = drop_unset(snapshot=snapshot, checkpoint=checkpoint)
        return await self.request("POST", _job(job_id, "resume"), **({"json": chosen} if chosen else {}))

    @api_call
    async def replay(
        self,
        job_id: str,
        step: int | None = None,
        *,
        until: int | None = None,
        device: str | None = None,
        record: bool = False,
        script: str | None = None,
        pdb: bool = False,
        rank: int | None = None,
        check_device: bool = False,
    ) -> answers.Job:
        """Submit a job that computes the steps from ``step`` to ``until`` again: by default the one that failed.

        ``script``: text of a hook. ``pdb``: open a debugger. ``rank``: only there. ``check_device``: submit several on
        several devices, and return the original, whose notice will be the result.
        """
        chosen = drop_unset(step=step, until=until, device=device, script=script, rank=rank)
        flags = drop_unset(record=record or None, pdb=pdb or None, check_device=check_device or None)
        return await self.request("POST", _job(job_id, "replay"), json=chosen | flags)

    @api_call
    async def delete(self, job_id: str) -> None:
        """Delete a finished job with its logs, metrics and snapshots."""
        await self.request("DELETE", _job(job_id))

    @api_call
    async def inject(self, job_id: str, fault: str, rank: int | None) -> answers.FaultInjection:
        """Inject a fault; the server chooses the rank where the fault needs one and ``rank`` is None."""
        return await self.request("POST", _job(job_id, "chaos"), json=drop_unset(fault=fault, rank=rank))

    @api_call
    async def devices(self) -> answers.Devices:
        """Every slot and the job that holds it."""
        return await self._get("/devices")

    @api_call
    async def disable_device(self, name: str, reason: str = "") -> answers.Device:
        """Disable a slot, as an administrator: no job gets it, and jobs that run on it leave it."""
        return await self.request("POST", f"/devices/{_segment(name)}/disable", json={"reason": reason})

    @api_call
    async def enable_device(self, name: str) -> answers.Device:
        """Use a slot again that was disabled, as an administrator."""
        return await self.request("POST", f"/devices/{_segment(name)}/enable")

    # --- the disk

    @api_call
    async def disk_usage(self) -> answers.DiskUsage:
        """What takes the disk of the server, and what could not be deleted."""
        return await self._get("/disk")

    @api_call
    async def prune(self, rules: dict[str, Any] | None = None, *, dry_run: bool = True) -> answers.PruneResult:
        """What the rules (default: those of the server's settings) remove; without ``dry_run``, remove it."""
        body = {**(rules or {}), "dry_run": dry_run}
        return await self.request("POST", "/disk/prune", json=body, timeout=LONG_TIMEOUT)

    # --- the history of a job

    @api_call
    async def attempts(self, job_id: str) -> list[answers.Attempt]:
        """Every attempt, oldest first."""
        return sorted(await self._items(_job(job_id, "attempts")), key=lambda attempt: attempt["number"])

    @api_call
    async def time_breakdown(self, job_id: str) -> answers.TimeBreakdown:
        """How many seconds the job spent training, saving, waiting and so on."""
        return await self._get(_job(job_id, "time"))

    @api_call
    async def step_times(self, job_id: str, attempt: int | None = None) -> answers.StepTimes:
        """What the time of a step is spent on, and what limits the speed, of one attempt (default: the latest)."""
        return await self._get(_job(job_id, "step-times"), attempt=attempt)

    @api_call
    async def configuration(self, job_id: str) -> answers.Configuration:
        """The working directory, code and environment of the job."""
        return await self._get(_job(job_id, "configuration"))

    @api_call
    async def story(self, job_id: str, attempt: int | None = None) -> answers.Story:
        """What happened to the job, or to one attempt of it: cause, rank, lines of code, next step."""
        return await self._get(_job(job_id, "story"), attempt=attempt)

    @api_call
    async def ranks(self, job_id: str, attempt: int | None = None) -> list[answers.Rank]:
        """The ranks of one attempt (default: the latest)."""
        return await self._items(_job(job_id, "ranks"), attempt=attempt)

    @api_call
    async def layers(self, job_id: str, rank: int, attempt: int | None = None) -> answers.Layers:
        """What a rank has computed in the step that was recorded, as ``replay`` with ``record`` does."""
        return await self._get(_job(job_id, f"ranks/{rank}/layers"), attempt=attempt)

    @api_call
    async def stack(self, job_id: str, rank: int) -> str:
        """The Python stacks of all threads of a live rank."""
        answer = await self.request("POST", _job(job_id, f"ranks/{rank}/stack"))
        return str(answer["stack"])

    @api_call
    async def snapshots(self, job_id: str) -> answers.SnapshotList:
        """The committed snapshots, latest first, and the policy by which they are taken."""
        return await self._get(_job(job_id, "snapshots"))

    @api_call
    async def metric_names(self, job_id: str) -> list[answers.MetricName]:
        """All metrics with their latest values."""
        return await self._items(_job(job_id, "metrics/names"))

    @api_call
    async def metrics(self, job_id: str, name: str) -> list[answers.MetricSeries]:
        """The series of one metric, one per attempt."""
        return await self._items(_job(job_id, "metrics"), name=name)

    @api_call
    async def digests(self, job_id: str, *, after: int = -1, limit: int = 500) -> answers.DigestedSteps:
        """One page of the steps with digests, those after the step ``after``."""
        return await self._get(_job(job_id, "digests"), after=after, limit=limit)

    @api_call
    async def diff(
        self, job_id: str, other_id: str, *, attempt: int | None = None, other_attempt: int | None = None
    ) -> answers.JobDiff:
        """Where two trainings, or attempts of them, are not the same any more, and what can explain it."""
        path = _job(job_id, f"diff/{_segment(other_id)}")
        params = drop_unset(attempt=attempt, other_attempt=other_attempt)
        return await self.request("GET", path, params=params, timeout=LONG_TIMEOUT)

    @api_call
    async def job_events(self, job_id: str) -> list[answers.JobEvent]:
        """The state changes and other events of the job, oldest first."""
        return await self._items(_job(job_id, "events"))

    @api_call
    async def log_lines(
        self,
        job_id: str,
        attempt: int | None = None,
        *,
        rank: int | None = None,
        stream: str | None = None,
        after: str | None = None,
        before: str | None = None,
        limit: int = 2000,
        q: str | None = None,
        regex: bool = False,
    ) -> answers.LogLines:
        """Lines of all ranks and both streams, or of some, in the order in which they came; from the beginning.

        ``after``: those that follow ``next`` of another page; ``before``: those before its ``previous``, or the last
        ones with ``"end"``. ``q``: only lines with this text, or with ``regex`` a match of this expression.
        """
        chosen = drop_unset(attempt=attempt, rank=rank, stream=stream, q=q, regex=regex or None)
        return await self._get(_job(job_id, "log"), **chosen, after=after, before=before, limit=limit)

    @api_call
    async def log(
        self, job_id: str, rank: int, stream: str, attempt: int, *, offset: int, limit: int = 1 << 18
    ) -> LogBytes:
        """Read up to ``limit`` bytes from byte ``offset``; empty at the current end of the log."""
        return await self._log(job_id, rank, stream=stream, attempt=attempt, offset=offset, limit=limit)

    @api_call
    async def log_tail(self, job_id: str, rank: int, stream: str, attempt: int, lines: int) -> LogBytes:
        """The last ``lines`` lines, as far as they are within the last MiB."""
        return await self._log(job_id, rank, stream=stream, attempt=attempt, tail=lines, limit=MAX_LOG_BYTES)

    # --- people

    @api_call
    async def me(self) -> answers.Me:
        """Who this client is for the server, and what it may do."""
        return await self._get("/me")

    @api_call
    async def tokens(self) -> list[answers.Token]:
        """All tokens for an administrator, one's own for others; without their secrets."""
        return await self._items("/tokens")

    @api_call
    async def create_token(
        self, person: str, scope: str = "submit", expires_in: float | None = None, note: str = ""
    ) -> answers.NewToken:
        """A new token; its secret is in the answer and never shown again."""
        body = drop_unset(person=person, scope=scope, expires_in=expires_in, note=note)
        return await self.request("POST", "/tokens", json=body)

    @api_call
    async def revoke_token(self, token_id: str) -> None:
        """End a token, and the browsers that have signed in with it."""
        await self.request("DELETE", f"/tokens/{_segment(token_id)}")

    @api_call
    async def audit(self, person: str | None = None, limit: int = 50) -> list[answers.AuditEntry]:
        """The latest entries of the audit log, latest first."""
        return await self._items("/audit", person=person, limit=limit)

    # --- experiments

    @api_call
    async def submit_experiment(self, body: dict[str, Any]) -> answers.Experiment:
        """Submit one experiment, even over a lost connection, as ``submit`` does."""
        return await self._create("/experiments", body)

    @api_call
    async def experiment(self, experiment_id: str) -> answers.Experiment:
        """The experiment with its jobs and the table of their results."""
        return await self._get(f"/experiments/{_segment(experiment_id)}")

    @api_call
    async def best_result(self, experiment_id: str) -> answers.BestResult:
        """The best result of an experiment, and the range of all its results."""
        return await self._get(f"/experiments/{_segment(experiment_id)}/best")

    @api_call
    async def experiments(self, limit: int = 20) -> list[answers.ExperimentSummary]:
        """The latest experiments, latest first."""
        return await self._items("/experiments", limit=limit)

    @api_call
    async def find_experiment(self, reference: str) -> answers.ExperimentSummary:
        """The experiment with this id, number or name (the latest of it), or the one whose id starts with it."""
        return await self._get("/experiments/resolve", ref=reference.encode(errors="replace").decode())

    @api_call
    async def builtin_experiments(self) -> list[answers.BuiltIn]:
        """The experiments that rekindle brings, with their definitions."""
        return await self._items("/experiments/builtin")

    @api_call
    async def cancel_experiment(self, experiment_id: str) -> answers.Experiment:
        """Cancel its unfinished jobs."""
        path = f"/experiments/{_segment(experiment_id)}/cancel"
        return await self.request("POST", path, timeout=LONG_TIMEOUT)

    @api_call
    async def resume_experiment(self, experiment_id: str) -> answers.Experiment:
        """Resume its failed jobs."""
        path = f"/experiments/{_segment(experiment_id)}/resume"
        return await self.request("POST", path, timeout=LONG_TIMEOUT)

    @api_call
    async def delete_experiment(self, experiment_id: str) -> None:
        """Delete it with all its jobs, which must have ended."""
        await self.request("DELETE", f"/experiments/{_segment(experiment_id)}", timeout=LONG_TIMEOUT)

    async def _log(self, job_id: str, rank: int, **params: Any) -> LogBytes:
        response = await self._send("GET", _job(job_id, f"ranks/{rank}/log"), params={**params, "raw": True})
        removed = "X-Removed-From" in response.headers and "offset" in params
        skipped = int(response.headers["X-Offset"]) - int(params["offset"]) if removed else 0
        return LogBytes(response.content, int(response.headers["X-Next-Offset"]), skipped)


def _job(job_id: str, rest: str = "") -> str:
    return f"/jobs/{_segment(job_id)}" + (f"/{rest}" if rest else "")


def _segment(text: str) -> str:
    """``text`` as one segment of a path, whatever characters it contains."""
    return quote(text, safe="")
