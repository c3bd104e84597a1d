"""`rekindle demo`: train, kill a rank, watch it go on."""

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from rekindle_service.cli import wording
from rekindle_service.cli.exit_codes import ExitCode, fate
from rekindle_service.cli.output import err, out
from rekindle_service.cli.rank_kill import kill_rank
from rekindle_service.cli.server_process import RunningServer, running_server, start_server
from rekindle_service.cli.session import settings_of
from rekindle_service.cli.watch import job_display
from rekindle_service.client import Attempt, Client, Job
from rekindle_service.config.home import Home

_VICTIM = 1  # the rank that is killed
_ACCURACY = 0.95
_POLL = 0.1  # seconds
_REQUEST = {"name": "demo", "recipe": "ddp", "ranks": 2, "device": "cpu", "snapshot": {"every_steps": 20}}


def demo(
    context: typer.Context,
    home: Annotated[Path | None, typer.Option(help="Folder of database, token and runs.")] = None,
) -> None:
    """Train on two ranks, kill -9 one of them, and see the job go on from its newest snapshot.

    Starts a server in the background if none runs in this home, and leaves it running. Exits with 0 only if the job
    succeeded after a restart from a snapshot, with a test accuracy of at least 0.95.
    """
    place = settings_of(context, home=home).home_dir
    server = _server(place)
    with Client(lambda: server.address) as client:
        job = _submit(client, server)
        job, killed_at = _kill_when_trained(client, job, place)
        job = _until(client, job["id"], lambda now: fate(now) is not None)
        attempts, accuracy = client.attempts(job["id"]), _test_accuracy(client, job["id"])
    _tell_recovery(attempts, killed_at)
    _tell_end(job, accuracy, server)
    missing = shortfalls(job, attempts, accuracy)
    for each in missing:
        err().print(Text.assemble(("not shown: ", "bold red"), each))
    raise typer.Exit(ExitCode.FAILED if missing else ExitCode.SUCCEEDED)


def _server(home: Home) -> RunningServer:
    server = running_server(home)
    if server is not None:
        _say("server", f"runs already in {home.root} (pid {server.pid})")
        return server
    server = start_server(home, home.root / "server.log")
    _say("server", f"started in {home.root} (pid {server.pid}); it stays up, end it with: kill {server.pid}")
    return server


def _submit(client: Client, server: RunningServer) -> Job:
    job = client.submit(dict(_REQUEST))
    _say("job", f"{job['number']} ({job['id']}): {wording.target(job)} on 2 ranks")
    _say("watch", page(server, job))
    return job


def _kill_when_trained(client: Client, job: Job, home: Home) -> tuple[Job, float]:
    """Wait until steps beyond a snapshot are done, so that the kill costs something, and kill a rank.

    Returns the job as it was then and the moment in seconds since the epoch.
    """
    while True:
        job = _until(client, job["id"], lambda now: past_a_snapshot(now) or bool(fate(now)))
        if fate(job) is not None:
            raise typer.Exit(_ended_too_soon(job))
        ranks = client.ranks(job["id"], job["attempt"])
        pid = next((rank["pid"] for rank in ranks if rank["rank"] == _VICTIM), None)
        rank_dir = home.run_dir(job["id"]).attempt(job["attempt"]).rank(_VICTIM)
        if pid is not None and kill_rank(rank_dir, pid):
            _say("snapshot", f"of step {job['snapshot_step']} is on disk; training is at step {job['step']}")
            _say("kill -9", f"rank {_VICTIM} (pid {pid})")
            return job, time.time()


def _ended_too_soon(job: Job) -> ExitCode:
    err().print(Text(f"The job ended before a rank could be killed: {job['state']}. {wording.situation(job)}"))
    return ExitCode.FAILED


def past_a_snapshot(job: Job) -> bool:
    """Whether a kill now loses some work but not all."""
    return job["state"] == "running" and 0 < (job["snapshot_step"] or 0) < (job["step"] or 0)


def _until(client: Client, job_id: str, reached: Callable[[Job], bool]) -> Job:
    """Look at the job until ``reached``, showing where it is."""
    with job_display() as display:
        while True:
            job = client.job(job_id)
            display.show(job)
            if reached(job):
                return job
            time.sleep(_POLL)


def _tell_recovery(attempts: list[Attempt], killed_at: float) -> None:
    for before, attempt in pairwise(attempts):
        if before["outcome"] is not None:
            _say("noticed", wording.outcome(before["outcome"]))
        running = wording.local_time(attempt["ranks_running_at"])
        took = (
            ""
            if running is None
            else f", its ranks ran {max(0.0, running.timestamp() - killed_at):.1f} s after the kill"
        )
        _say("resumed", f"attempt {attempt['number']} from step {attempt['resumed_from_step']}{took}")
        killed_at = float("inf")  # later attempts are not answers to this kill


def _test_accuracy(client: Client, job_id: str) -> float | None:
    """The last accuracy on the test set that the recipe reported."""
    points = [point for series in client.metrics(job_id, "test_accuracy") for point in series["points"]]
    return points[-1][3] if points else None


def shortfalls(job: Job, attempts: list[Attempt], accuracy: float | None) -> list[str]:
    """What the demo promises and this run did not do."""
    missing = []
    if job["state"] != "succeeded":
        missing.append(f"the job should succeed; it is {job['state']}: {wording.situation(job)}")
    if job["restarts"] < 1:
        missing.append("the kill should cause a restart; there was none")
    if not any((attempt["resumed_from_step"] or 0) > 0 for attempt in attempts[1:]):
        missing.append("an attempt should resume from a step beyond 0; none did")
    if accuracy is None or accuracy < _ACCURACY:
        missing.append(f"the test accuracy should be at least {_ACCURACY}; it is {accuracy}")
    return missing


def _tell_end(job: Job, accuracy: float | None, server: RunningServer) -> None:
    reached = "unknown" if accuracy is None else f"{accuracy:.4f}"
    _say(job["state"], f"at step {job['step']}; restarts {job['restarts']}; accuracy on the test set {reached}")
    _say("look", page(server, job))


def page(server: RunningServer, job: Job) -> str:
    """The address of the job's page; the token stands behind the #, which browsers never send."""
    return f"{server.address.url}/jobs/{job['id']}#token={server.address.token}"


def _say(label: str, text: str) -> None:
    out().print(Text.assemble((f"{label:<10} ", "bold"), text))
