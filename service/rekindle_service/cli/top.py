"""`rekindle top`: slots, jobs and ranks as they are now, looked at again every second."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated

import typer
from rich.live import Live

from rekindle_service.cli.job_completion import complete_job
from rekindle_service.cli.output import Output, OutputOption, out, show_ids, show_json
from rekindle_service.cli.session import connect, find_job
from rekindle_service.cli.top_frame import JobSight, MachineSight, Sight, frame, whole
from rekindle_service.client import Absence, Client, Job, NoServerError, ProblemError, rests

_EVERY = 1.0  # seconds
_LIVE_STATES = ("running", "recovering", "starting", "queued")
_MOST = 100  # jobs of one state
_RECENT = 20  # jobs among which those that have ended are looked for
_MOST_OVER = 5


def top(
    context: typer.Context,
    job: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="Show the ranks of this job instead.", autocompletion=complete_job),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Watch slots and jobs, or the ranks of one job, until Ctrl-C, which leaves the jobs alone.

    It goes on through a restart of the server. Without a terminal, and with -o json or -o id, it tells once how
    things are, and ends.
    """
    with connect(context) as client:
        look = _look(client, job)
        sight = look()
        match output:
            case Output.JSON:
                show_json(sight.to_json())
            case Output.ID:
                show_ids(sight.ids())
            case Output.TABLE if sys.stdout.isatty():
                _watch(look, sight)
            case Output.TABLE:
                out().print(whole(sight))


def _look(client: Client, reference: str | None) -> Callable[[], Sight]:
    if reference is None:
        return lambda: machine_sight(client)
    job_id = find_job(client, reference)["id"]
    return lambda: job_sight(client, job_id)


def machine_sight(client: Client) -> MachineSight:
    """A job that changes its state between two questions is shown once, as it was last."""
    live = {job["id"]: job for state in _LIVE_STATES for job in client.jobs(state=state, limit=_MOST)}
    recent = [job for job in client.jobs(limit=_RECENT) if rests(job) and job["id"] not in live]
    return MachineSight(client.devices()["items"], sorted(live.values(), key=_urgency), recent[:_MOST_OVER])


def _urgency(job: Job) -> tuple[int, int, int]:
    """Jobs with slots first, then the queue in its order, then what is held or waits for another job."""
    queued = job["state"] == "queued"
    place = job["queue_position"]
    return (0 if not queued else 1 if place is not None else 2), place or 0, -job["number"]


def job_sight(client: Client, job_id: str) -> JobSight:
    job = client.job(job_id)
    return JobSight(job, client.attempts(job_id), client.ranks(job_id))


@dataclass(slots=True)
class _Notice:
    """Since when the server has been away, in words."""

    text: str = ""

    def tell(self, back: bool) -> None:
        since = f"{datetime.now():%H:%M:%S}"
        self.text = "" if back else f"The server has been away since {since}; jobs go on without it. Trying again."


def _watch(look: Callable[[], Sight], sight: Sight) -> None:
    """Draw on a screen of its own, which the terminal puts away again whatever ends this."""
    console, notice = out(), _Notice()
    absence = Absence(notice.tell)
    absence.over()
    with suppress(KeyboardInterrupt), Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(frame(sight, notice.text, *console.size), refresh=True)
            time.sleep(_EVERY)
            try:
                sight = look()
            except (NoServerError, ProblemError) as error:
                absence.excuse(error)
            else:
                absence.over()
