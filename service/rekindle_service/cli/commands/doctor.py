"""`rekindle doctor`: check this machine or a job, and advise what to do about each problem."""

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from rekindle_service.cli.checks import Finding, Level
from rekindle_service.cli.context import OptionalJobArgument, connect, server_settings_of
from rekindle_service.cli.formatting import job_name, number_of
from rekindle_service.cli.job_interpreter import shell_python
from rekindle_service.cli.layout import harmless, paragraph
from rekindle_service.cli.terminal import ExitCode, Output, OutputOption, counted, out, print_answer, working
from rekindle_service.config.notification_targets import NotificationTarget
from rekindle_service.config.settings import Settings
from rekindle_service.sanitize import strip_control

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


def doctor(
    context: typer.Context,
    job: OptionalJobArgument = None,
    python: Annotated[
        str | None, typer.Option(help="Interpreter that runs jobs. (default: the one that a job would get)")
    ] = None,
    stacks: Annotated[
        bool, typer.Option("--stacks", help="With JOB: also print the Python stacks of every rank.")
    ] = False,
    slurm: Annotated[
        bool, typer.Option("--slurm", help="Check the Slurm cluster instead, with a probe on each of its nodes.")
    ] = False,
    partition: Annotated[
        str | None, typer.Option(help="With --slurm: the partition to check. (default: Slurm's default partition)")
    ] = None,
    notify: Annotated[
        bool, typer.Option("--notify", help="Send a test through each notification channel instead.")
    ] = False,
    output: OutputOption = "table",
) -> None:
    """Check this machine or one job, and advise about each problem.

    Exits with 1 if there is a problem, with 0 if there are only warnings. -o id prints the names of all checks that
    found a problem or a warning.
    """
    settings = server_settings_of(context)
    if notify:
        if job is not None or stacks or slurm:
            raise typer.BadParameter("--notify tests the channels of notifications: pass it alone")
        findings = [_notified(target) for target in counted(settings.notify, "Notifying")]
        _print(findings, [], output)
    elif slurm:
        from rekindle_service.cli.checks.slurm_checks import slurm as check_slurm

        if job is not None or stacks:
            raise typer.BadParameter("--slurm checks the cluster: pass it alone, or with --python and --partition")
        with working("Checking the Slurm cluster"):
            findings = check_slurm(settings.home_dir.root, python or sys.executable, settings.host_timeout, partition)
        _print(findings, [], output)
    elif partition is not None:
        raise typer.BadParameter("--partition needs --slurm")
    elif job is None:
        if stacks:
            raise typer.BadParameter("--stacks needs a job")
        checks = _machine_checks(settings, python)
        findings = [finding for check in counted(checks, "Checking") for finding in check()]
        _print(findings, [], output)
    else:
        from rekindle_service.cli.checks import job_checks

        with connect(context) as client:
            found = client.find_job(job)
            with working(f"Checking {job_name(found)}"):
                findings = job_checks.check_job(client, found, settings.home_dir if settings.url is None else None)
            _print(findings, job_checks.stacks(client, found) if stacks else [], output)
    failed = any(finding.level is Level.PROBLEM for finding in findings)
    raise typer.Exit(ExitCode.FAILED if failed else ExitCode.SUCCEEDED)


def _machine_checks(settings: Settings, python: str | None) -> list[Callable[[], Iterable[Finding]]]:
    """The groups of checks; they load NVML and more that no other command needs."""
    from rekindle_service.cli.checks.machine_checks import home_access, isolation, storage, system
    from rekindle_service.cli.checks.software_checks import gpus, interpreters, software

    def of_jobs() -> list[Finding]:
        if python is not None:
            return software(python)
        found, chosen = interpreters(list(_candidates(settings)))
        return [*found, *software(chosen)]

    home = settings.home_dir
    return [
        of_jobs,
        lambda: gpus(home.runs),
        lambda: system(home.root),
        lambda: storage(home.root),
        lambda: [*home_access(home), *isolation(settings)],
    ]


def _notified(target: NotificationTarget) -> Finding:
    """Send a test through a channel. Nothing that it shows is secret."""
    from rekindle_service.notifications.channels import DeliveryResult, channel_of
    from rekindle_service.notifications.payload import probe_payload

    channel = channel_of(target)
    try:
        delivery = channel.deliver(probe_payload())
    finally:
        channel.close()
    whose = "every job" if target.owner is None else f"jobs of {target.owner}"
    if delivery.result is DeliveryResult.DELIVERED:
        return Finding("notify", Level.OK, f"{target.label} took a test; it gets events of {whose}")
    advice = "Check its table [[notify]] in rekindle.toml."
    return Finding("notify", Level.PROBLEM, f"{target.label} did not take a test: {delivery.reason}", advice)


def _candidates(settings: Settings) -> Iterator[tuple[str, str]]:
    """Interpreters in the order in which they are tried for a job that names none, and what each is."""
    if (shell := shell_python()) is not None:
        yield shell.path, "`python` of this shell" if shell.environment is None else "of the active environment"
    if settings.python is not None:
        yield settings.python, "of the setting python"
    yield sys.executable, "which runs this command"


def _print(findings: list[Finding], stacks: list[tuple[int, str]], output: Output) -> None:
    listed = [asdict(finding) for finding in findings]
    answer = {"findings": listed, "stacks": dict(stacks)} if stacks else listed
    if not print_answer(output, answer, (finding.name for finding in findings if finding.level is not Level.OK)):
        console = out()
        for line in (line for finding in findings for line in finding_lines(console, finding)):
            console.print(line)
        for rank, stack in stacks:
            out().print(Text(f"\nrank {rank}\n{strip_control(stack)}"))
        out().print(summary(findings))


def finding_lines(console: Console, finding: Finding) -> Iterator[Text]:
    """``problem  host name      'box' does not resolve``, and the advice on the next line."""
    level, name = (f"{finding.level:<8} ", _STYLES[finding.level]), harmless(f"{finding.name:<14} ", "bold")
    label = Text.assemble(level, name)
    yield from paragraph(console, finding.detail, label=label)
    if finding.advice:
        yield from paragraph(console, finding.advice, indent=label.cell_len)


def summary(findings: Sequence[Finding]) -> str:
    """``All checks passed.`` or the numbers of problems and warnings."""
    counts = [(level, sum(finding.level is level for finding in findings)) for level in (Level.PROBLEM, Level.WARNING)]
    failed = ", ".join(number_of(count, level) for level, count in counts if count)
    return (failed or "All checks passed") + "."
