"""The page of the metrics for Prometheus, from what the server collects with a job on each kind of slot."""

import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, cast

from docs.reference.markdown import GENERATED, code, table
from job_examples import a_job
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.api.dependencies import AppState
from rekindle_service.api.routes.monitoring import MetricsCollector
from rekindle_service.machine.slots import Slot
from rekindle_service.store.totals import JobTotals
from step_files import lockstep, write_steps

_INTRODUCTION = """\
`GET /metrics` answers them in the text format of Prometheus, or as OpenMetrics where that is requested. It takes the
token of a person as a bearer token; [Watch](../operations.md#watch) shows how Prometheus is configured. Only jobs that
hold slots have series of their own. Counters survive a restart of the server and include deleted jobs. A value that is
not known is omitted."""


def lines() -> Iterator[str]:
    """The whole page."""
    yield from ("# Metrics", "", GENERATED, "", *_INTRODUCTION.splitlines(), "")
    with TemporaryDirectory() as directory:
        run_dir = RunDir(Path(directory))
        write_steps(run_dir, lockstep({}))
        rows = list(map(_row, MetricsCollector(_state(run_dir), None).collect()))
    yield from table(("metric", "type", "labels", "value"), rows)


def _row(metric: Any) -> tuple[str, str, str, str]:
    names = {sample.name: None for sample in metric.samples}
    labels = dict.fromkeys(label for sample in metric.samples for label in sample.labels)
    return ", ".join(map(code, names)), metric.type, ", ".join(map(code, labels)), metric.documentation


def _state(run_dir: RunDir) -> AppState:
    """What the collector reads, of a server with one job."""
    known = {"step": 1, "snapshot_step": 1, "progress": 0.5, "goodput": 0.9, "steps_per_second": 2.0, "attempt": 1}
    job = a_job(id="k3v9x2m1qa", name="digits", devices=["cpu:0"], **known)
    health = SimpleNamespace(age=0.1, stuck=[], failing=0, problem=lambda: None)
    state = SimpleNamespace(
        started_at=time.time(),
        scheduler_health=lambda: health,
        home=SimpleNamespace(root=Path("/"), run_dir=lambda _: run_dir),
        store=SimpleNamespace(
            holding=lambda: [job],
            totals=lambda: JobTotals({}, 0, {}),
            lists=SimpleNamespace(held=lambda *_: ([], 0)),
            attempt=lambda *_: AttemptInfo(1, world_size=1),
        ),
        machine=SimpleNamespace(slots=(Slot("cpu:0", "cpu", 0),)),
        devices=SimpleNamespace(health=SimpleNamespace(unusable=dict)),
    )
    return cast("AppState", state)
