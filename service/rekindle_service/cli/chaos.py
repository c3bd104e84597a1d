"""`rekindle chaos`: strike a job of one's own, and see what it costs."""

import math
import secrets
import sys
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Annotated

import typer

from rekindle_service.cli import wording
from rekindle_service.cli.exit_codes import ExitCode, fate
from rekindle_service.cli.fault_cost import COLUMNS, Cost, all_came_back, row, sentence
from rekindle_service.cli.fault_plan import KNOWN, SERVER, Strike, Wish, known_fault, strikes
from rekindle_service.cli.fault_trial import JobOverError, Trial
from rekindle_service.cli.output import Output, OutputOption, note, out, show_ids, show_json, table
from rekindle_service.cli.patience import Patience
from rekindle_service.cli.server_process import replace_server
from rekindle_service.cli.session import JobArgument, connect, find_job, settings_of
from rekindle_service.client import Job, ProblemError
from rekindle_service.config.settings import Settings
from rekindle_service.sanitize import sanitize_line

_SEEDS = 1_000_000


def chaos(
    context: typer.Context,
    job: JobArgument,
    fault: Annotated[
        list[str] | None, typer.Option(metavar="FAULT", help=f"May be repeated: {', '.join(KNOWN)}. (default: kill)")
    ] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="The rank to strike. (default: any)")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="So many faults in all. (default: each once)")] = None,
    every: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Let the job run so long before each.")
    ] = None,
    at_step: Annotated[int | None, typer.Option(min=0, help="The first fault waits for this step.")] = None,
    at_random: Annotated[bool, typer.Option("--random", help="Draw faults, ranks and moments by chance.")] = False,
    seed: Annotated[int | None, typer.Option(help="Draw the same once more.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Inject faults into a running job, and tell what each of them cost.

    Each fault waits until the job trains and has saved something since the last one. corrupt-snapshot damages the
    newest snapshot and then kills a rank, since nobody would notice otherwise; server kills this machine's server and
    starts it again. Exits with 0 only if the job came back from every fault.
    """
    if every is not None and not math.isfinite(every):
        raise typer.BadParameter(f"--every takes a number of seconds, not {every}")
    wish = Wish([known_fault(each) for each in fault or []], rank, count, every, at_random)
    settings = _settings(context, wish)
    with connect(context) as client:
        found = find_job(client, job)
        _require_going(found)
        if sys.stdin.isatty() and not yes:
            typer.confirm(f"Inject faults into {sanitize_line(found['name'])} (job {found['number']})?", abort=True)
        replace = partial(replace_server, settings.home_dir, settings.home / "server.log")
        trial = Trial(client, found["id"], Patience(note), replace)
        campaign = Campaign(trial, typer.echo if output is Output.TABLE else note)
        code = campaign.run(wish, at_step, secrets.randbelow(_SEEDS) if seed is None else seed)
    _show(found, campaign.costs, output)
    raise typer.Exit(code)


def _settings(context: typer.Context, wish: Wish) -> Settings:
    settings = settings_of(context)
    if SERVER in wish.faults and settings.url is not None:
        raise typer.BadParameter(f"--fault server: only the server of this machine can be killed, not {settings.url}")
    return settings


def _require_going(job: Job) -> None:
    """Raises ProblemError for a job to which nothing happens any more by itself."""
    if fate(job) is not None:
        state = "held" if fate(job) is ExitCode.HELD else job["state"]
        raise ProblemError({"title": "Wrong state", "detail": f"chaos needs a running job; this one is {state}"})


class Campaign:
    """The faults of one call, one after the other; ``costs`` are those that have struck."""

    def __init__(self, trial: Trial, say: Callable[[str], None]) -> None:
        self._trial, self._say = trial, say
        self.costs: list[Cost] = []

    def run(self, wish: Wish, at_step: int | None, seed: int) -> ExitCode:
        """Ends early when the job does. Raises typer.BadParameter for a rank that the job does not have."""
        try:
            self._strike_all(wish, at_step, seed)
        except JobOverError as over:
            missed = wish.total - len(self.costs)
            self._say(f"{missed} of {wish.total} faults did not strike: the job was {over.job['state']} before")
        except KeyboardInterrupt:
            note("The job goes on.")
            return ExitCode.INTERRUPTED
        return ExitCode.SUCCEEDED if all_came_back(self.costs, wish.total) else ExitCode.FAILED

    def _strike_all(self, wish: Wish, at_step: int | None, seed: int) -> None:
        first = self._trial.await_moment()
        plan = strikes(wish, first.job["world_size"] or 1, Random(seed))  # noqa: S311  # repeatable, guards nothing
        if wish.random:
            self._say(f"seed {seed}: the same faults come again with --seed {seed}")
        for strike in plan:
            self._strike(strike, at_step)
            at_step = None

    def _strike(self, strike: Strike, at_step: int | None) -> None:
        before = self._trial.await_moment(strike.pause, at_step, saved=at_step is None)
        place = "" if before.step is None else f" at step {before.step}"
        self._say(f"{wording.fault(strike.fault, strike.rank)}: strikes attempt {before.attempt}{place}")
        self.costs.append(self._trial.strike(strike, before))
        self._say(f"    {sentence(self.costs[-1])}")


def _show(job: Job, costs: list[Cost], output: Output) -> None:
    match output:
        case Output.JSON:
            show_json([cost.to_json() for cost in costs])
        case Output.ID:
            show_ids([job["id"]])
        case Output.TABLE if costs:
            out().print(table(COLUMNS, (row(cost) for cost in costs)))
