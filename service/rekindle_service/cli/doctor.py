"""`rekindle doctor`: is this machine fit, and if not, what to do about it?"""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from rekindle_service.cli.checks import job as job_checks
from rekindle_service.cli.checks.finding import Finding, Level
from rekindle_service.cli.checks.home import home_folder
from rekindle_service.cli.checks.kernel import kernel
from rekindle_service.cli.checks.network import network
from rekindle_service.cli.checks.software import software
from rekindle_service.cli.checks.storage import storage
from rekindle_service.cli.exit_codes import ExitCode
from rekindle_service.cli.job_completion import complete_job
from rekindle_service.cli.output import Output, OutputOption, out, show_ids, show_json
from rekindle_service.cli.session import connect, find_job, settings_of
from rekindle_service.config.home import Home
from rekindle_service.sanitize import sanitize_line, strip_control

_STYLES = {Level.OK: "green", Level.WARNING: "yellow", Level.PROBLEM: "bold red"}


def doctor(
    context: typer.Context,
    job: Annotated[
        str | None,
        typer.Argument(metavar="[JOB]", help="Look at this job instead.", autocompletion=complete_job),
    ] = None,
    python: Annotated[str | None, typer.Option(help="The interpreter that runs jobs. (default: this one)")] = None,
    stacks: Annotated[bool, typer.Option("--stacks", help="With JOB: where does every rank stand now?")] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Check this machine, or one job, and say what to do about each trouble.

    Exits with 1 when there is a problem; a warning alone is none. -o id prints the names of what is not well.
    """
    settings = settings_of(context)
    if job is None:
        if stacks:
            raise typer.BadParameter("--stacks needs a job")
        findings = machine(settings.home_dir, python or sys.executable)
        _show(findings, [], output)
    else:
        with connect(context) as client:
            found = find_job(client, job)
            findings = job_checks.examine(client, found, settings.home_dir if settings.url is None else None)
            _show(findings, job_checks.stacks(client, found) if stacks else [], output)
    raise typer.Exit(ExitCode.FAILED if _worst(findings) is Level.PROBLEM else ExitCode.SUCCEEDED)


def machine(home: Home, python: str) -> list[Finding]:
    """Everything that can be seen without a job."""
    from rekindle_service.cli.checks.gpus import gpus  # loads NVML, which no other command needs

    return [
        *software(python),
        *gpus(home.runs),
        *network(),
        *storage(home.root),
        *kernel(home.root),
        *home_folder(home),
    ]


def _worst(findings: Sequence[Finding]) -> Level:
    return max((finding.level for finding in findings), key=list(Level).index, default=Level.OK)


def _show(findings: list[Finding], stacks: list[tuple[int, str]], output: Output) -> None:
    match output:
        case Output.JSON:
            told = [finding.to_json() for finding in findings]
            show_json({"findings": told, "stacks": dict(stacks)} if stacks else told)
        case Output.ID:
            show_ids(finding.name for finding in findings if finding.level is not Level.OK)
        case Output.TABLE:
            for finding in findings:
                out().print(finding_text(finding))
            for rank, stack in stacks:
                out().print(Text(f"\nrank {rank}\n{strip_control(stack)}"))
            out().print(verdict(findings))


def finding_text(finding: Finding) -> Text:
    """``problem  host name      'box' does not resolve`` and below it what to do."""
    level = (f"{finding.level:<8} ", _STYLES[finding.level])
    text = Text.assemble(level, (f"{sanitize_line(finding.name):<14} ", "bold"), sanitize_line(finding.detail))
    if finding.advice:
        text.append(f"\n{'':<24}{sanitize_line(finding.advice)}")
    return text


def verdict(findings: Sequence[Finding]) -> str:
    """``All well.`` or how many problems and warnings there are."""
    counts = [(level, sum(finding.level is level for finding in findings)) for level in (Level.PROBLEM, Level.WARNING)]
    told = [f"{count} {level}{'s' if count > 1 else ''}" for level, count in counts if count]
    return (", ".join(told) or "All well") + "."
