"""The page of the metrics for Prometheus, from what the server collects with a job on each kind of slot."""

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from docs.reference.markdown import GENERATED, code, table
from rekindle_service.api.dependencies import AppState
from rekindle_service.api.routes.monitoring import MetricsCollector
from rekindle_service.machine.slots import Slot
from rekindle_service.store.tables import Job
from rekindle_service.store.totals import JobTotals

_INTRODUCTION = """\
`GET /metrics` answers them in the text format of Prometheus, or as OpenMetrics where that is requested. It takes the
token of a person as a bearer token; [Watch](../operations.md#watch) shows how Prometheus is configured. Only jobs that
hold slots have series of their own. Counters survive a restart of the server and include deleted jobs. A value that is
not known is omitted."""


def lines() -> Iterator[str]:
    """The whole page."""
    yield from ("# Metrics", "", GENERATED, "", *_INTRODUCTION.splitlines(), "")
    yield from table(("metric", "type", "labels", "value"), map(_row, MetricsCollector(_state(), None).collect()))


def _row(metric: Any) -> tuple[str, str, str, str]:
    names = {sample.name: None for sample in metric.samples}
    labels = dict.fromkeys(label for sample in metric.samples for label in sample.labels)
    return ", ".join(map(code, names)), metric.type, ", ".join(map(code, labels)), metric.documentation


def _state() -> AppState:
    """What the collector reads, of a server with one job."""
    job = Job(id="k3v9x2m1qa", name="digits", devices=["cpu:0"], step=1, snapshot_step=1, progress=0.5, goodput=0.9)
    job.steps_per_second = 2.0
    health = SimpleNamespace(age=0.1, stuck=[], failing=0, problem=lambda: None)
    state = SimpleNamespace(
        started_at=time.time(),
        scheduler_health=lambda: health,
        home=SimpleNamespace(root=Path("/")),
        store=SimpleNamespace(holding=lambda: [job], totals=lambda: JobTotals({}, 0, {})),
        machine=SimpleNamespace(slots=(Slot("cpu:0", "cpu", 0),)),
        devices=SimpleNamespace(health=SimpleNamespace(unusable=dict)),
    )
    return cast("AppState", state)
