"""`rekindle top`: slots, jobs and ranks, refreshed every second."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime

import typer
from rich.live import Live

from rekindle_service.cli.context import OptionalJobArgument, connect, find_job
from rekindle_service.cli.formatting import Output, OutputOption, out, print_answer
from rekindle_service.cli.top_view import JobView, MachineView, View, frame, full_view
from rekindle_service.client import Client, Job, NoServerError, ProblemError, ReconnectPolicy, is_settled

_INTERVAL = 1.0  # seconds
_LIVE_STATES = ("running", "recovering", "starting", "queued")
_MAX_JOBS = 100  # of one state
_RECENT_JOBS = 20  # jobs that are searched for settled ones
_MAX_SETTLED = 5


def top(context: typer.Context, job: OptionalJobArgument = None, output: OutputOption = Output.TABLE) -> None:
    """Watch slots and jobs, or the ranks of one job, until Ctrl-C, which does not affect the jobs.

    It continues through a restart of the server. Without a terminal, and with -o json or -o id: print once and exit.
    """
    with connect(context) as client:
        poll = _poller(client, job)
        view = poll()
        if print_answer(output, view.to_json(), view.ids()):
            return
        if sys.stdout.isatty():
            _watch(poll, view)
        else:
            out().print(full_view(view))


def _poller(client: Client, reference: str | None) -> Callable[[], View]:
    if reference is None:
        return lambda: machine_view(client)
    job_id = find_job(client, reference)["id"]
    return lambda: JobView(client.job(job_id), client.attempts(job_id), client.ranks(job_id))


def machine_view(client: Client) -> MachineView:
    """A job that changes its state between two requests is shown once, in its later state."""
    live = {job["id"]: job for state in _LIVE_STATES for job in client.jobs(state=state, limit=_MAX_JOBS)}
    recent = [job for job in client.jobs(limit=_RECENT_JOBS) if is_settled(job) and job["id"] not in live]
    return MachineView(client.devices()["items"], sorted(live.values(), key=_order), recent[:_MAX_SETTLED])


def _order(job: Job) -> tuple[int, int, int]:
    """Jobs with slots first, then the queue in its order, then jobs that are held or wait for another job."""
    position = job["queue_position"]
    group = 0 if job["state"] != "queued" else 1 if position is not None else 2
    return group, position or 0, -job["number"]


def _watch(poll: Callable[[], View], view: View) -> None:
    """Draw on the terminal's alternate screen, which is left whatever ends this."""
    console, unreachable_since = out(), ""

    def on_connection_change(reachable: bool) -> None:
        nonlocal unreachable_since
        unreachable_since = "" if reachable else f"{datetime.now():%H:%M:%S}"

    policy = ReconnectPolicy(on_connection_change)
    policy.on_success()
    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            warning = f"Server unreachable since {unreachable_since}; jobs keep running; retrying."
            live.update(frame(view, warning if unreachable_since else "", *console.size), refresh=True)
            time.sleep(_INTERVAL)
            try:
                view = poll()
            except (NoServerError, ProblemError) as error:
                policy.on_error(error)
            else:
                policy.on_success()
