"""Every request of the interface and how its answer is read, for whichever client sends it."""

import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import httpx2

from rekindle_service.client.event import Event
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

T = TypeVar("T")

_PATIENT = 300  # seconds
_SILENCE = 45  # seconds without a sign on the event stream, which gives one every 15


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request. ``repeats``: after a lost connection it may be sent once more, with the same effect."""

    method: str
    path: str
    read: Callable[[httpx2.Response], T]
    options: dict[str, Any] = field(default_factory=dict)  # of the HTTP client's ``request``
    repeats: bool = False

    @property
    def url(self) -> str:
        return f"/api/v1{self.path}"


@dataclass(frozen=True, slots=True)
class JobPage:
    items: list[Job]
    next: Any


def submit(body: dict[str, Any]) -> Call[Job]:
    """The server copies the code, which may take a while."""
    return _created("/jobs", body, timeout=_PATIENT)


def submit_experiment(body: dict[str, Any]) -> Call[Experiment]:
    """The server copies the code for each job, which may take a while."""
    return _created("/experiments", body, timeout=_PATIENT)


def upload_bundle() -> Call[str]:
    """The client adds the content."""
    options = {"headers": {"Content-Type": "application/gzip"}, "timeout": _PATIENT}
    return Call("POST", "/bundles", lambda response: str(response.json()["id"]), options)


def job(job_id: str) -> Call[Job]:
    return Call("GET", _job(job_id), _answer)


def job_page(**query: Any) -> Call[JobPage]:
    return Call("GET", "/jobs", lambda response: JobPage(**response.json()), {"params": _given(**query)})


def wish(job_id: str, verb: str) -> Call[Job]:
    """``verb``: cancel, drain or resume."""
    return Call("POST", _job(job_id, verb), _answer)


def delete(job_id: str) -> Call[None]:
    return Call("DELETE", _job(job_id), lambda response: None)


def inject(job_id: str, fault: str, rank: int | None) -> Call[Injection]:
    return Call("POST", _job(job_id, "chaos"), _answer, {"json": _given(fault=fault, rank=rank)})


def attempts(job_id: str) -> Call[list[Attempt]]:
    return Call("GET", _job(job_id, "attempts"), _in_order)


def time_breakdown(job_id: str) -> Call[JobTime]:
    return Call("GET", _job(job_id, "time"), _answer)


def configuration(job_id: str) -> Call[Configuration]:
    return Call("GET", _job(job_id, "configuration"), _answer)


def ranks(job_id: str, attempt: int | None) -> Call[list[Rank]]:
    return Call("GET", _job(job_id, "ranks"), _items, {"params": _given(attempt=attempt)})


def stack(job_id: str, rank: int) -> Call[str]:
    return Call("POST", _job(job_id, f"ranks/{rank}/stack"), lambda response: str(response.json()["stack"]))


def snapshots(job_id: str) -> Call[SnapshotList]:
    return Call("GET", _job(job_id, "snapshots"), _answer)


def metrics(job_id: str, name: str) -> Call[list[MetricSeries]]:
    return Call("GET", _job(job_id, "metrics"), _items, {"params": {"name": name}})


def story(job_id: str) -> Call[list[StoryEvent]]:
    return Call("GET", _job(job_id, "events"), _items)


def log(job_id: str, rank: int, **params: Any) -> Call[LogPart]:
    return Call("GET", _job(job_id, f"ranks/{rank}/log"), _log_part, {"params": params})


def devices() -> Call[Devices]:
    return Call("GET", "/devices", _answer)


def events(jobs: Collection[str], logs: Collection[str], since: int | None) -> Call[Event]:
    """The stream, which is read event by event: ``read`` is not for its answer."""
    params = _given(job=list(jobs), log=list(logs), last_event_id=since)
    return Call("GET", "/events", _answer, {"params": params, "timeout": httpx2.Timeout(_SILENCE, connect=5)})


def experiment(experiment_id: str) -> Call[Experiment]:
    return Call("GET", f"/experiments/{_segment(experiment_id)}", _answer)


def experiments(limit: int) -> Call[list[ExperimentSummary]]:
    return Call("GET", "/experiments", _items, {"params": {"limit": limit}})


def builtin_experiments() -> Call[list[BuiltIn]]:
    return Call("GET", "/experiments/builtin", _items)


def cancel_experiment(experiment_id: str) -> Call[Experiment]:
    return Call("POST", f"/experiments/{_segment(experiment_id)}/cancel", _answer)


def _created(path: str, body: dict[str, Any], **options: Any) -> Call[Any]:
    """Create one thing, whatever happens to the connection: to a repeat of the key the server answers the first."""
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    return Call("POST", path, _answer, {"json": body, "headers": headers, **options}, repeats=True)


def _job(job_id: str, rest: str = "") -> str:
    return f"/jobs/{_segment(job_id)}" + (f"/{rest}" if rest else "")


def _segment(text: str) -> str:
    """``text`` as one segment of a path, whatever it holds."""
    return quote(text, safe="")


def _given(**params: Any) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def _answer(response: httpx2.Response) -> Any:
    return response.json()


def _items(response: httpx2.Response) -> Any:
    """The whole of a list that has no pages."""
    return response.json()["items"]


def _in_order(response: httpx2.Response) -> Any:
    return sorted(_items(response), key=lambda item: item["number"])


def _log_part(response: httpx2.Response) -> LogPart:
    return LogPart(response.content, int(response.headers["X-Next-Offset"]))
