"""`rekindle chaos`: inject faults into a job, and report what each of them cost."""

import math
import secrets
import sys
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Annotated

import typer
from typer import Option

from rekindle_service.cli import formatting
from rekindle_service.cli.background_server import replace_server
from rekindle_service.cli.context import JobArgument, YesOption, connect, settings_of
from rekindle_service.cli.fault_run import (
    COLUMNS,
    KNOWN_FAULTS,
    SERVER,
    ChaosOptions,
    FaultReport,
    FaultRun,
    JobSettledError,
    all_recovered,
    parse_fault,
    plan_faults,
    report_row,
    report_sentence,
)
from rekindle_service.cli.layout import Table
from rekindle_service.cli.terminal import (
    ExitCode,
    OutputOption,
    confirm,
    note,
    note_connection,
    out,
    print_answer,
    print_line,
)
from rekindle_service.client import ProblemError, is_settled

_SEEDS = 1_000_000
_FAULT_HELP = f"Repeatable: {', '.join(KNOWN_FAULTS)}. (default: kill)"
_EVERY_HELP = "Seconds between faults. (default: 0; with --random 3 on average)"


def chaos(
    context: typer.Context,
    job: JobArgument,
    fault: Annotated[list[str] | None, Option(metavar="FAULT", help=_FAULT_HELP)] = None,
    rank: Annotated[int | None, Option(min=0, help="Rank to inject faults into. (default: the server chooses)")] = None,
    count: Annotated[int | None, Option(min=1, help="Number of faults. (default: each --fault once)")] = None,
    every: Annotated[float | None, Option(min=0, metavar="SECONDS", help=_EVERY_HELP)] = None,
    at_step: Annotated[
        int | None, Option(min=0, help="Step at which to inject the first fault. (default: after progress)")
    ] = None,
    at_random: Annotated[
        bool, Option("--random", help="Randomise faults, ranks and times. (default: in order)")
    ] = False,
    seed: Annotated[
        int | None, Option(help="With --random: seed that repeats the same faults. (default: a new one)")
    ] = None,
    yes: YesOption = False,
    output: OutputOption = "table",
) -> None:
    """Inject faults into a running job, and report what each one cost.

    Each fault waits until the job trains and has made progress since the last one. corrupt-snapshot damages the latest
    snapshot and then kills a rank, so that the snapshot is read; server kills this machine's server and starts it
    again. Exits with 0 only if the job recovered from every fault.
    """
    if every is not None and not math.isfinite(every):
        raise typer.BadParameter(f"--every takes a number of seconds, not {every}")
    options = ChaosOptions([parse_fault(each) for each in fault or []], rank, count, every, at_random)
    settings = settings_of(context)
    if SERVER in options.faults and settings.url is not None:
        raise typer.BadParameter(f"--fault server: only the server of this machine can be killed, not {settings.url}")
    with connect(context) as client:
        found = client.find_job(job)
        if is_settled(found):
            detail = f"the state of {formatting.job_name(found)} is {formatting.state_name(found)}"
            raise ProblemError({"title": "Wrong state", "detail": f"chaos needs a running job; {detail}"})
        if sys.stdin.isatty() and not yes:
            confirm(f"Inject faults into {formatting.job_name(found)}?")
        replace = partial(replace_server, settings.home_dir, settings.home / "server.log")
        run = FaultRun(client.reconnecting(note_connection), found["id"], replace)
        report = print_line if output == "table" else note
        seed = secrets.randbelow(_SEEDS) if seed is None else seed
        reports, code = _inject_all(run, options, at_step, seed, report)
    if not print_answer(output, [report.to_json() for report in reports], [found["id"]]) and reports:
        out().print(Table(COLUMNS, map(report_row, reports), cut={"FAULT": 12}))
    raise typer.Exit(code)


def _inject_all(
    run: FaultRun, options: ChaosOptions, at_step: int | None, seed: int, report: Callable[[str], None]
) -> tuple[list[FaultReport], ExitCode]:
    """Inject one fault after the other; ends early when the job does, or at Ctrl-C.

    Raises typer.BadParameter for a rank that the job does not have.
    """
    reports: list[FaultReport] = []
    try:
        world_size = run.wait_ready().job["world_size"] or 1
        plan = plan_faults(options, world_size, Random(seed))  # noqa: S311  # repeatable, protects nothing
        if options.random:
            report(f"seed {seed}: repeat the same faults with --seed {seed}")
        for planned in plan:
            before = run.wait_ready(planned.delay, at_step, needs_progress=at_step is None)
            position = "" if before.step is None else f" at step {before.step}"
            report(f"{formatting.fault(planned.fault, planned.rank)}: into attempt {before.attempt}{position}")
            reports.append(run.inject(planned, before))
            report(f"    {report_sentence(reports[-1])}")
            at_step = None
    except JobSettledError as settled:
        missed = options.total - len(reports)
        report(f"Not injected: {formatting.number_of(missed, 'fault')} of {options.total}, since the job {settled}")
    except KeyboardInterrupt:
        note("The job keeps running.")
        return reports, ExitCode.INTERRUPTED
    return reports, ExitCode.SUCCEEDED if all_recovered(reports, options.total) else ExitCode.FAILED
