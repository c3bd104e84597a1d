"""The REST interface from Python, as the command line uses it.

Answers are the server's JSON as it is, described as typed dictionaries: nothing is lost between the server and
``-o json``, and a field that a newer server adds does no harm.
"""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO, Self, TypedDict
from urllib.parse import quote

import httpx2

from rekindle.contract.durable import read_json
from rekindle_service.home import Home
from rekindle_service.settings import Settings

_PAGE = 100  # jobs in one answer
_PATIENT = 300  # seconds

Outcome = TypedDict(
    "Outcome",
    {
        "class": str,  # a keyword, hence this form
        "message": str,
        "rank": int | None,
        "exit_code": int | None,
        "signal": str | None,
        "exception": str | None,
        "file": str | None,
        "line": int | None,
    },
)
"""How an attempt or a job ended."""


class Job(TypedDict):
    """What the command line reads of a job; the answer holds more."""

    id: str
    number: int
    name: str
    state: str
    phase: str | None
    intent: str
    attempt: int
    world_size: int | None
    ranks: dict[str, int]
    devices: list[str]
    epoch: int | None
    epochs: int | None
    step: int | None
    steps: int | None
    progress: float | None
    eta_seconds: float | None
    steps_per_second: float | None
    restarts: int
    outcome: Outcome | None
    next_try_at: str | None
    queue_position: int | None
    waiting_for: str | None
    priority: int
    target: dict[str, str]
    args: list[str]
    snapshot_step: int | None
    notice: str | None
    created_at: str | None
    started_at: str | None
    ended_at: str | None
    goodput: float | None
    python: str


class Fault(TypedDict):
    """Injected on request; ``snapshot`` is the step of the one that was damaged."""

    at: str | None
    fault: str
    rank: int | None
    snapshot: int | None


class Attempt(TypedDict):
    """One launch of torchrun."""

    number: int
    state: str
    started_at: str | None
    ranks_running_at: str | None
    ended_at: str | None
    outcome: Outcome | None
    resumed_from_step: int | None
    last_step: int | None
    durable_step: int | None
    world_size: int | None
    devices: list[str]
    next_try_at: str | None
    reason: str | None
    faults: list[Fault]


class Rank(TypedDict):
    """One process of one attempt."""

    rank: int
    host: str
    pid: int | None
    state: str
    phase: str | None
    step: int | None
    resumed_from_step: int | None
    durable_step: int | None
    device: str | None
    process_state: str | None
    heartbeat_age: float | None
    straggler: float | None


class Snapshot(TypedDict):
    step: int
    epoch: int | None
    bytes: int
    verified: bool
    world_size: int
    created_at: str | None
    score: float | None
    best: bool


class SnapshotList(TypedDict):
    """``cadence``: how often they are taken, in words."""

    items: list[Snapshot]
    cadence: str | None


class Injection(TypedDict):
    """A fault on its way; ``rank`` is the one that it strikes."""

    attempt: int
    fault: str
    rank: int | None


class MetricSeries(TypedDict):
    """Points are ``[step, epoch, seconds since the epoch, value]``."""

    attempt: int
    name: str
    points: list[tuple[int, int | None, float, float | None]]


class Cell(TypedDict):
    """One job of an experiment; ``values`` are in the order of the experiment's measures."""

    job: str
    number: int
    name: str
    state: str
    intent: str
    parameters: dict[str, Any]
    repeat: int
    seconds: float | None
    outcome: Outcome | None
    values: list[float | None]


class Row(TypedDict):
    """One combination of parameters; ``spread`` is the lowest and highest of its repeats."""

    parameters: dict[str, Any]
    cells: list[int]
    values: list[float | None]
    spread: list[tuple[float, float] | None]


class ExperimentSummary(TypedDict):
    id: str
    number: int
    name: str
    title: str
    command: str | None
    created_at: str
    over: bool
    jobs: int
    states: dict[str, int]


class Experiment(ExperimentSummary):
    """With its table; ``machine`` is where it was measured."""

    definition: dict[str, Any]
    machine: dict[str, Any]
    notes: list[str]
    parameters: list[str]
    measures: list[str]
    rows: list[Row]
    cells: list[Cell]


class BuiltIn(TypedDict):
    """An experiment that comes with rekindle."""

    name: str
    size: str
    title: str
    jobs: int
    definition: dict[str, Any]


class FieldProblem(TypedDict, total=False):
    field: str
    rule: str
    value: Any
    hint: str | None


class Problem(TypedDict, total=False):
    """RFC 9457: why the server did not do it."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldProblem]


class ProblemError(Exception):
    """The server understood and said no; the same request will be refused again."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.get("detail") or problem.get("title") or "the server refused")
        self.problem = problem


class NoServerError(Exception):
    """No server answers. It may be started or come back: the same call can succeed later."""


@dataclass(frozen=True, slots=True)
class Address:
    url: str
    token: str


@dataclass(frozen=True, slots=True)
class LogPart:
    """Raw bytes of a log; the next part begins at ``next_offset``."""

    data: bytes
    next_offset: int


def find_server(settings: Settings) -> Address:
    """Where the server is: ``REKINDLE_URL`` with ``REKINDLE_TOKEN``, else what the home of this machine says.

    Raises NoServerError when neither names one.
    """
    if settings.url is not None:
        if settings.token is None:  # the token of this machine's home is another server's secret
            raise NoServerError(f"REKINDLE_URL is {settings.url}, but there is no token: set REKINDLE_TOKEN as well.")
        return Address(settings.url, settings.token)
    return server_in(settings.home_dir)


def shares_disk(settings: Settings) -> bool:
    """Whether the server lies on this machine, as far as this machine's home tells: else code has to be uploaded."""
    if settings.url is None:
        return True
    own = read_json(settings.home_dir.server_json)
    return isinstance(own, dict) and str(own.get("url")).rstrip("/") == settings.url.rstrip("/")


def server_in(home: Home) -> Address:
    """The server that owns ``home``. Raises NoServerError when there is none."""
    server = read_json(home.server_json)
    if not isinstance(server, dict) or not home.token.exists():
        raise NoServerError(f"No server is running in {home.root}.")
    return Address(str(server["url"]), home.token.read_text().strip())


class Client:
    """One server, found again whenever the connection is lost.

    A restarted server may have another port. A caller that catches NoServerError and repeats a read therefore goes
    on as if nothing had happened. Not thread-safe.
    """

    def __init__(self, locate: Callable[[], Address]) -> None:
        self._locate = locate
        self._http: httpx2.Client | None = None

    @classmethod
    def from_home(cls, settings: Settings) -> Self:
        return cls(lambda: find_server(settings))

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
        job: Job = self._once("/jobs", body)
        return job

    def upload_bundle(self, archive: BinaryIO) -> str:
        """Upload a tar.gz from its current position on; gives back the id for ``code.bundle`` of a job."""
        begin = archive.tell()
        try:
            return self._upload(archive)
        except NoServerError:  # the same archive has the same id: once more does no harm
            archive.seek(begin)
            return self._upload(archive)

    def _upload(self, archive: BinaryIO) -> str:
        headers = {"Content-Type": "application/gzip"}
        return str(self._json("POST", "/bundles", content=archive, headers=headers, timeout=_PATIENT)["id"])

    def job(self, job_id: str) -> Job:
        return self._job("GET", f"/jobs/{_segment(job_id)}")

    def jobs(self, *, state: str | None = None, name: str | None = None, limit: int = 50) -> Iterator[Job]:
        """At most ``limit`` jobs, newest first."""
        cursor: Any = None
        while limit > 0:
            query = _given(state=state, name=name, limit=min(limit, _PAGE), cursor=cursor)
            page = self._json("GET", "/jobs", params=query)
            yield from page["items"]
            limit, cursor = limit - len(page["items"]), page["next"]
            if cursor is None:
                return

    def cancel(self, job_id: str) -> Job:
        return self._job("POST", f"/jobs/{_segment(job_id)}/cancel")

    def drain(self, job_id: str) -> Job:
        return self._job("POST", f"/jobs/{_segment(job_id)}/drain")

    def resume(self, job_id: str) -> Job:
        return self._job("POST", f"/jobs/{_segment(job_id)}/resume")

    def inject(self, job_id: str, fault: str, rank: int | None) -> Injection:
        """Have a fault injected; the server picks the rank where the fault needs one and none is given."""
        body = _given(fault=fault, rank=rank)
        injection: Injection = self._json("POST", f"/jobs/{_segment(job_id)}/chaos", json=body)
        return injection

    # --- what a job has done

    def attempts(self, job_id: str) -> list[Attempt]:
        """Every attempt, oldest first."""
        attempts: list[Attempt] = self._items(f"/jobs/{_segment(job_id)}/attempts")
        return sorted(attempts, key=lambda attempt: attempt["number"])

    def ranks(self, job_id: str, attempt: int | None = None) -> list[Rank]:
        """The ranks of one attempt, by default the newest."""
        return self._items(f"/jobs/{_segment(job_id)}/ranks", attempt=attempt)

    def stack(self, job_id: str, rank: int) -> str:
        """The Python stacks of all threads of a living rank."""
        return str(self._json("POST", f"/jobs/{_segment(job_id)}/ranks/{rank}/stack")["stack"])

    def snapshots(self, job_id: str) -> SnapshotList:
        taken: SnapshotList = self._json("GET", f"/jobs/{_segment(job_id)}/snapshots")
        return taken

    def metrics(self, job_id: str, name: str) -> list[MetricSeries]:
        """The series of one metric, one for each attempt."""
        return self._items(f"/jobs/{_segment(job_id)}/metrics", name=name)

    def log(self, job_id: str, rank: int, stream: str, attempt: int, *, offset: int, limit: int = 1 << 18) -> LogPart:
        """At most ``limit`` bytes from byte ``offset`` on; empty at the end of what there is so far."""
        return self._log(job_id, rank, {"stream": stream, "attempt": attempt, "offset": offset, "limit": limit})

    def log_tail(self, job_id: str, rank: int, stream: str, attempt: int, lines: int) -> LogPart:
        """The last ``lines`` lines."""
        return self._log(job_id, rank, {"stream": stream, "attempt": attempt, "tail": lines})

    def _log(self, job_id: str, rank: int, params: dict[str, Any]) -> LogPart:
        response = self._send("GET", f"/jobs/{_segment(job_id)}/ranks/{rank}/log", params=params)
        return LogPart(response.content, int(response.headers["X-Next-Offset"]))

    # --- experiments

    def submit_experiment(self, body: dict[str, Any]) -> Experiment:
        """Submit once, as ``submit`` does. The server copies the code for each job, which may take a while."""
        experiment: Experiment = self._once("/experiments", body, timeout=_PATIENT)
        return experiment

    def experiment(self, experiment_id: str) -> Experiment:
        experiment: Experiment = self._json("GET", f"/experiments/{_segment(experiment_id)}")
        return experiment

    def experiments(self, limit: int = 20) -> list[ExperimentSummary]:
        """The newest, newest first."""
        return self._items("/experiments", limit=limit)

    def builtin_experiments(self) -> list[BuiltIn]:
        return self._items("/experiments/builtin")

    def cancel_experiment(self, experiment_id: str) -> Experiment:
        experiment: Experiment = self._json("POST", f"/experiments/{_segment(experiment_id)}/cancel")
        return experiment

    # --- the wire

    def _once(self, path: str, body: dict[str, Any], **options: Any) -> Any:
        """Create one thing, whatever happens to the connection: to a repeat of the key the server answers the first."""
        request = {"json": body, "headers": {"Idempotency-Key": uuid.uuid4().hex}, **options}
        try:
            return self._json("POST", path, **request)
        except NoServerError:
            return self._json("POST", path, **request)

    def _job(self, method: str, path: str, **request: Any) -> Job:
        job: Job = self._json(method, path, **request)
        return job

    def _items(self, path: str, **params: Any) -> list[Any]:
        """The whole of a list that has no pages."""
        items: list[Any] = self._json("GET", path, params=_given(**params))["items"]
        return items

    def _json(self, method: str, path: str, **request: Any) -> Any:
        return self._send(method, path, **request).json()

    def _send(self, method: str, path: str, **request: Any) -> httpx2.Response:
        try:
            response = self._connection().request(method, f"/api/v1{path}", **request)
        except httpx2.TransportError as error:
            url = self._connection().base_url
            self.close()
            raise NoServerError(f"The server at {url} does not answer ({error or type(error).__name__}).") from error
        if response.is_error:
            raise ProblemError(_problem(response))
        return response

    def _connection(self) -> httpx2.Client:
        if self._http is None:
            address = self._locate()
            # Reading the system's certificates takes longer than the whole request: only where TLS is spoken.
            # trust_env is off, since a proxy of the environment cannot reach this machine's loopback.
            self._http = httpx2.Client(
                base_url=address.url,
                headers={"Authorization": f"Bearer {address.token}"},
                timeout=httpx2.Timeout(30, connect=5),
                trust_env=False,
                verify=address.url.startswith("https:"),
            )
        return self._http


def _segment(text: str) -> str:
    """``text`` as one segment of a path, whatever it holds."""
    return quote(text, safe="")


def _given(**params: Any) -> dict[str, Any]:
    return {name: value for name, value in params.items() if value is not None}


def _problem(response: httpx2.Response) -> Problem:
    """The problem document, or one made up for an answer that has none (a proxy's page, another program's port)."""
    if response.headers.get("content-type", "").startswith("application/problem+json"):
        problem: Problem = response.json()
        return problem
    return {
        "title": response.reason_phrase,
        "status": response.status_code,
        "detail": f"{response.request.url} answered {response.status_code} without saying why. Is this rekindle?",
    }
