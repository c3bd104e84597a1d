"""Monitoring of the server: liveness and readiness, without a token, and metrics for Prometheus."""

import shutil
from collections.abc import Iterable, Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Response
from fastapi.security import HTTPBearer
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from rekindle.contract import __version__
from rekindle.contract.outcome import OutcomeClass
from rekindle.contract.states import JobState
from rekindle_service.api.dependencies import AppState, AppStateDep, ReadableBy
from rekindle_service.api.problems import RESPONSES
from rekindle_service.api.worker_pools import CHECKS
from rekindle_service.jobs.step_times import read_step_times
from rekindle_service.sanitize import sanitize_line
from rekindle_service.schemas.machine_json import Health, Readiness
from rekindle_service.store import StorageError
from rekindle_service.store.tables import Job
from rekindle_service.store.totals import JobTotals

router = APIRouter(tags=["health"])

BEARER = Depends(HTTPBearer(auto_error=False, description="The token that `rekindle token` prints"))
"""Documents the token; ``AuthMiddleware`` checks it."""

_ACCEPT = "Formats that the client accepts: the text format of Prometheus (default) or OpenMetrics"
_JOB_GAUGES = {
    "rekindle_job_step": ("Optimizer steps that the job has completed", "step"),
    "rekindle_job_snapshot_step": ("Step of the latest committed snapshot of the job", "snapshot_step"),
    "rekindle_job_progress_ratio": ("Progress of the job, 0 to 1", "progress"),
    "rekindle_job_goodput_ratio": ("Share of the job's time in training that was not replayed, 0 to 1", "goodput"),
    "rekindle_job_steps_per_second": ("Optimizer steps per second", "steps_per_second"),
}


@router.get("/healthz")
async def healthz() -> Health:
    """Check that the server responds."""  # a coroutine: it needs no thread, of which all may be busy
    return Health(status="ok", version=__version__)


@router.get("/readyz", responses={503: {"model": Readiness}})
@CHECKS.route
def readyz(state: AppStateDep, response: Response) -> Readiness:
    """Check that the server can accept jobs: the database responds, the scheduler runs, files can be written.

    The scheduler counts as stuck 30 seconds after its latest iteration. `jobs` names running jobs whose files do not
    respond: they alone are affected.
    """
    checks = {
        "database": _database(state),
        "scheduler": state.scheduler_health().problem() or "ok",
        "disk": state.home.lack_of_space() or state.home.unwritable() or "ok",
    }
    ready = all(result == "ok" for result in checks.values())
    if (jobs := state.scheduler_health().jobs_problem()) is not None:
        checks["jobs"] = jobs  # the others are looked after: the server is ready for more
    response.status_code = 200 if ready else 503
    return Readiness(status="ready" if ready else "not ready", checks=checks, warnings=_warnings(state))


def _warnings(state: AppState) -> list[str]:
    """Without a token nobody learns which job it is about."""
    stuck = len(state.retention.deletions.stuck())
    return [f"{stuck} directories cannot be deleted; see the page Disk"] if stuck else []


def _database(state: AppState) -> str:
    try:
        state.store.check()
    except StorageError as error:
        return error.state
    return "ok"


@router.get(
    "/metrics",
    response_class=Response,
    dependencies=[BEARER],
    responses={**RESPONSES, 200: {"content": {"text/plain": {}}}},
)
def prometheus_metrics(
    state: AppStateDep, readable_by: ReadableBy, accept: Annotated[str, Header(description=_ACCEPT)] = ""
) -> Response:
    """Get metrics of jobs, slots and the server for Prometheus, which sends the token as a bearer token."""
    encode, content_type = choose_encoder(accept)
    return Response(encode(MetricsCollector(state, readable_by)), headers={"Content-Type": content_type})


class MetricsCollector(Collector):
    """Reads all values on each scrape. Labels have few values: only jobs that hold slots have series."""

    def __init__(self, state: AppState, readable_by: str | None) -> None:
        """``readable_by``: only jobs of this owner have series of their own; sums are those of all jobs."""
        self._state, self._readable_by = state, readable_by

    def collect(self) -> Iterator[Metric]:
        holding = self._state.store.holding()
        yield from _server(self._state)
        yield from _totals(self._state.store.totals())
        _, held = self._state.store.lists.held(0, None)
        yield GaugeMetricFamily("rekindle_jobs_held", "Queued jobs that start only when they are released", held)
        yield _slots(self._state, holding)
        readable = [job for job in holding if self._readable_by in (None, job.owner)]
        yield from _jobs(readable)
        yield _steps(self._state, readable)


def _server(state: AppState) -> Iterator[Metric]:
    yield InfoMetricFamily("rekindle_build", "Version of rekindle", {"version": __version__})
    yield GaugeMetricFamily(
        "rekindle_start_time_seconds", "Start time of the server, in seconds since the epoch", state.started_at
    )
    health = state.scheduler_health()
    up = health.problem() is None
    yield GaugeMetricFamily("rekindle_scheduler_up", "1 while the loop that schedules and monitors jobs runs", up)
    yield GaugeMetricFamily("rekindle_scheduler_age_seconds", "Seconds since its latest iteration ended", health.age)
    stuck, failing = len(health.stuck), health.failing
    yield GaugeMetricFamily("rekindle_jobs_unresponsive", "Running jobs whose files do not respond", stuck)
    yield GaugeMetricFamily(
        "rekindle_scheduler_failing", "Jobs and duties that the latest iteration failed at", failing
    )
    free = shutil.disk_usage(state.home.root).free
    yield GaugeMetricFamily("rekindle_home_free_bytes", "Free bytes on the disk of all runs", free)


def _totals(totals: JobTotals) -> Iterator[Metric]:
    jobs = GaugeMetricFamily("rekindle_jobs", "Jobs by state", labels=["state"])
    for state in JobState:
        jobs.add_metric([state], totals.jobs.get(state, 0))
    yield jobs
    yield CounterMetricFamily("rekindle_job_restarts", "Attempts that followed a failure, of all jobs", totals.restarts)
    ended = CounterMetricFamily(
        "rekindle_attempts_ended", "Ended attempts by outcome class, such as oom or hang", labels=["class"]
    )
    for name in OutcomeClass:
        ended.add_metric([name], totals.endings.get(name, 0))
    yield ended


def _slots(state: AppState, holding: Iterable[Job]) -> Metric:
    held, unusable = {name for job in holding for name in job.devices}, state.devices.health.unusable().keys()
    slots = GaugeMetricFamily(
        "rekindle_slots", "Slots of this machine; unusable ones are given to no job", labels=["device", "state"]
    )
    for device in sorted({slot.device for slot in state.machine.slots}):
        names = {slot.name for slot in state.machine.slots if slot.device == device}
        slots.add_metric([device, "held"], len(names & held))
        slots.add_metric([device, "free"], len(names - held - unusable))
        slots.add_metric([device, "unusable"], len(names & unusable - held))
    return slots


def _jobs(holding: list[Job]) -> Iterator[Metric]:
    info = InfoMetricFamily("rekindle_job", "Jobs that hold slots", labels=["job_id"])
    for job in holding:
        info.add_metric([job.id], {"name": sanitize_line(job.name)})
    yield info
    for name, (help_text, column) in _JOB_GAUGES.items():
        gauge = GaugeMetricFamily(name, help_text, labels=["job_id"])
        for job in holding:
            if (value := getattr(job, column)) is not None:
                gauge.add_metric([job.id], value)
        yield gauge


def _steps(state: AppState, holding: list[Job]) -> Metric:
    text = "Seconds of a step of the slowest rank, by phase, such as data or forward"
    gauge = GaugeMetricFamily("rekindle_job_step_phase_seconds", text, labels=["job_id", "phase"])
    for job in [each for each in holding if each.id not in state.scheduler_health().stuck]:
        if (attempt := state.store.attempt(job.id, job.attempt)) is not None:
            times = read_step_times(job.spec, state.home.run_dir(job.id), attempt)
            for phase, seconds in times.seconds.items():
                gauge.add_metric([job.id, phase], seconds)
    return gauge
