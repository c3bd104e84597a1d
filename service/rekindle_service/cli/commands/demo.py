"""`rekindle demo`: train, kill a rank, and show how the job resumes."""

import signal
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise

import typer
from rich.text import Text

from rekindle.contract.files import read_json
from rekindle.contract.processes import ProcessIdentity, boot_id
from rekindle.contract.run_dir.paths import RankDir
from rekindle.contract.run_dir.rank_records import RankStatus
from rekindle_service.cli import formatting
from rekindle_service.cli.background_server import running_server, start_server
from rekindle_service.cli.commands.follow import job_display
from rekindle_service.cli.context import HomeOption, server_settings_of
from rekindle_service.cli.layout import harmless
from rekindle_service.cli.terminal import ExitCode, err, note, out
from rekindle_service.client import Attempt, Client, Job, ProblemError, Server, is_settled
from rekindle_service.config.home import Home

_KILLED_RANK = 1
_MIN_ACCURACY = 0.95
_POLL_INTERVAL = 0.1  # seconds
_NEEDED = ("torch", "torchvision", "torchmetrics", "sklearn")
_REQUEST = {"name": "demo", "recipe": "ddp", "ranks": 2, "device": "cpu", "snapshot": {"every_steps": 20}}


def demo(context: typer.Context, home: HomeOption = None) -> None:
    """Train on two ranks, kill one, and show how the job resumes.

    One rank is killed with SIGKILL when a snapshot (checkpoint) is on disk. A server is started in the background if
    none runs in this home, and keeps running. Exits with 0 only if the job succeeded after a restart from a snapshot,
    with a test accuracy of at least 0.95.
    """
    directory = server_settings_of(context, home=home).home_dir
    server = _server(directory)
    with Client(lambda: server) as client:
        job = client.submit(dict(_REQUEST))
        _report("job", f"{job['number']} ({job['id']}): {formatting.target(job)} on 2 ranks")
        _report("watch", page(server, job))
        killed_at = _kill_after_snapshot(client, job["id"], directory)
        job = _poll_until(client, job["id"], is_settled)
        attempts, reported = client.attempts(job["id"]), client.metrics(job["id"], "test_accuracy")
    points = [point for series in reported for point in series["points"]]
    accuracy = points[-1][3] if points else None
    _report_recovery(attempts, killed_at)
    reached = "unknown" if accuracy is None else f"{accuracy:.4f}"
    _report(job["state"], f"at step {job['step']}; restarts {job['restarts']}; accuracy on the test set {reached}")
    _report("page", page(server, job))
    missing = shortfalls(job, attempts, accuracy)
    for each in missing:
        err().print(Text.assemble(("not shown: ", "bold red"), harmless(each)))
    raise typer.Exit(ExitCode.FAILED if missing else ExitCode.SUCCEEDED)


def _server(home: Home) -> Server:
    """The server that runs, or a new one. Raises ProblemError where this interpreter lacks what recipes need."""
    server = running_server(home)
    if server is not None:
        _report("server", f"already runs in {home.root} (pid {server.pid})")
        return server
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        lack = f"the demo trains a recipe, which needs {', '.join(missing)}: not installed in {sys.executable}"
        install = f"{sys.executable} -m pip install torch torchvision torchmetrics scikit-learn"
        raise ProblemError({"title": "No demo", "detail": f"{lack}. Install what all recipes need: {install}"})
    server = start_server(home, home.root / "server.log")
    _report("server", f"started in {home.root} (pid {server.pid}); it keeps running, end it with: kill {server.pid}")
    return server


def _kill_after_snapshot(client: Client, job_id: str, home: Home) -> float:
    """Kill a rank when steps after a snapshot are finished, so that it has a cost; returns seconds since the epoch."""
    while True:
        job = _poll_until(client, job_id, lambda now: is_past_snapshot(now) or is_settled(now))
        if is_settled(job):
            status = formatting.status_line(job)
            note(f"The job ended before a rank could be killed: {job['state']}. {status}")
            raise typer.Exit(ExitCode.FAILED)
        ranks = client.ranks(job_id, job["attempt"])
        pid = next((rank["pid"] for rank in ranks if rank["rank"] == _KILLED_RANK), None)
        rank_dir = home.run_dir(job_id).attempt(job["attempt"]).rank(_KILLED_RANK)
        if pid is not None and kill_rank(rank_dir, pid):
            _report("snapshot", f"of step {job['snapshot_step']} is on disk; training is at step {job['step']}")
            _report("kill -9", f"rank {_KILLED_RANK} (pid {pid})")
            return time.time()


def is_past_snapshot(job: Job) -> bool:
    """Whether a kill now loses some steps but not all."""
    return job["state"] == "running" and 0 < (job["snapshot_step"] or 0) < (job["step"] or 0)


def kill_rank(rank_dir: RankDir, pid: int) -> bool:
    """SIGKILL the process that wrote ``rank_dir``, if it is ``pid`` and still runs; False when it does not."""
    value = read_json(rank_dir.status)
    status = None if value is None else RankStatus.from_json(value)
    if status is None or status.pid != pid:
        return False
    return ProcessIdentity(pid, status.start_time, boot_id()).send_signal(signal.SIGKILL)


def _poll_until(client: Client, job_id: str, reached: Callable[[Job], bool]) -> Job:
    """Poll the job until ``reached``, and show its progress."""
    with job_display() as show:
        while True:
            job = client.job(job_id)
            show(job)
            if reached(job):
                return job
            time.sleep(_POLL_INTERVAL)


def _report_recovery(attempts: list[Attempt], killed_at: float) -> None:
    for before, attempt in pairwise(attempts):
        if before["outcome"] is not None:
            _report("noticed", formatting.outcome(before["outcome"]))
        running, took = formatting.local_time(attempt["ranks_running_at"]), ""
        if running is not None and before is attempts[0]:  # later attempts do not follow this kill
            took = f", its ranks ran {max(0.0, running.timestamp() - killed_at):.1f} s after the kill"
        _report("resumed", f"attempt {attempt['number']} from step {attempt['resumed_from_step']}{took}")


def shortfalls(job: Job, attempts: list[Attempt], accuracy: float | None) -> list[str]:
    """What the demo promises and this run did not show."""
    resumed = any((attempt["resumed_from_step"] or 0) > 0 for attempt in attempts[1:])
    shown = {
        f"the job should succeed; it is {job['state']}: {formatting.status_line(job)}": job["state"] == "succeeded",
        "the kill should cause a restart; there was none": job["restarts"] > 0,
        "an attempt should resume from a step after 0; none did": resumed,
        f"the test accuracy should be at least {_MIN_ACCURACY}; it is {accuracy}": (accuracy or 0) >= _MIN_ACCURACY,
    }
    return [promise for promise, kept in shown.items() if not kept]


def page(server: Server, job: Job) -> str:
    """The URL of the job's page; browsers never send the token, which is after the #."""
    return f"{server.url}/jobs/{job['id']}#token={server.token}"


def _report(label: str, text: str) -> None:
    out().print(Text.assemble((f"{label:<10} ", "bold"), harmless(text)))
