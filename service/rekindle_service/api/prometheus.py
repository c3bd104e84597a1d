"""Figures for Prometheus. Labels have few values: only jobs that hold slots are told one by one."""

import shutil
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Header, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from rekindle.contract.outcome import OutcomeClass
from rekindle.contract.states import HOLDING_SLOTS, JobState
from rekindle_service.api.services import Services, Serving
from rekindle_service.sanitize import sanitize_line
from rekindle_service.store.tables import Job
from rekindle_service.store.totals import Totals

router = APIRouter(tags=["health"])

_JOB_GAUGES = {
    "rekindle_job_step": ("Optimizer steps that the job has finished", "step"),
    "rekindle_job_snapshot_step": ("Step of the newest durable snapshot of the job", "snapshot_step"),
    "rekindle_job_progress_ratio": ("How much of the job is done, 0 to 1", "progress"),
    "rekindle_job_goodput_ratio": ("Share of the job's time that went into steps that last, 0 to 1", "goodput"),
    "rekindle_job_steps_per_second": ("Speed of the job", "steps_per_second"),
}


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
def prometheus_metrics(services: Serving, accept: Annotated[str, Header()] = "") -> Response:
    """Figures about jobs, slots and this server in the text format of Prometheus, which sends the token as a bearer."""
    registry = CollectorRegistry()
    registry.register(_Figures(services))
    encode, content_type = choose_encoder(accept)
    return Response(encode(registry), headers={"Content-Type": content_type})


class _Figures(Collector):
    """Everything is read from the rows when it is asked for."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        services = self._services
        holding = services.store.jobs_in(HOLDING_SLOTS)
        yield from _server(services)
        yield from _totals(services.store.totals())
        yield _slots(services, holding)
        yield from _jobs(holding)


def _server(services: Services) -> Iterator[Metric]:
    yield InfoMetricFamily("rekindle_build", "The version of rekindle", {"version": version("rekindle")})
    started, alive = services.started_at, services.engine_alive()
    yield GaugeMetricFamily("rekindle_start_time_seconds", "When the server was started, since the epoch", started)
    yield GaugeMetricFamily("rekindle_engine_up", "Whether the loop that starts and tends jobs runs", alive)
    free = shutil.disk_usage(services.home.root).free
    yield GaugeMetricFamily("rekindle_home_free_bytes", "Free space on the disk of all runs", free)


def _totals(totals: Totals) -> Iterator[Metric]:
    jobs = GaugeMetricFamily("rekindle_jobs", "Jobs by state", labels=["state"])
    for state in JobState:
        jobs.add_metric([state], totals.jobs.get(state, 0))
    yield jobs
    yield CounterMetricFamily("rekindle_job_restarts", "Attempts that followed a failure, of all jobs", totals.restarts)
    ended = CounterMetricFamily("rekindle_attempts_ended", "Attempts by the class of their outcome", labels=["class"])
    for name in OutcomeClass:
        ended.add_metric([name], totals.endings.get(name, 0))
    yield ended


def _slots(services: Services, holding: Iterable[Job]) -> Metric:
    held = {name for job in holding for name in job.devices}
    slots = GaugeMetricFamily("rekindle_slots", "Slots of this machine", labels=["device", "state"])
    for device in sorted({slot.device for slot in services.machine.slots}):
        names = {slot.name for slot in services.machine.slots if slot.device == device}
        slots.add_metric([device, "held"], len(names & held))
        slots.add_metric([device, "free"], len(names - held))
    return slots


def _jobs(holding: list[Job]) -> Iterator[Metric]:
    info = InfoMetricFamily("rekindle_job", "The jobs that hold slots", labels=["job_id"])
    for job in holding:
        info.add_metric([job.id], {"name": sanitize_line(job.name)})
    yield info
    for name, (help_text, column) in _JOB_GAUGES.items():
        gauge = GaugeMetricFamily(name, help_text, labels=["job_id"])
        for job in holding:
            if (value := getattr(job, column)) is not None:
                gauge.add_metric([job.id], value)
        yield gauge
