"""`rekindle experiment`: a set of jobs that differ in some parameters, and the table that compares them."""

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from rekindle_service.cli import comparison_table, request_body, wording
from rekindle_service.cli.exit_codes import ExitCode, fate
from rekindle_service.cli.experiment_file import read_experiment
from rekindle_service.cli.output import Output, OutputOption, note, out, show_ids, show_json
from rekindle_service.cli.patience import Patience
from rekindle_service.cli.session import connect, settings_of
from rekindle_service.cli.upload import experiment_with_code
from rekindle_service.client import Client, Experiment, ExperimentSummary, ProblemError, Trial
from rekindle_service.experiments.matrix import label
from rekindle_service.sanitize import sanitize_line

_POLL = 1.0  # seconds
_SEARCHED = 200  # experiments

Reference = Annotated[
    str | None, typer.Option(metavar="EXPERIMENT", help="Id, number or name of one that was started.")
]


def experiment(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="One of rekindle's own; see --list.")] = None,
    args: Annotated[list[str] | None, typer.Argument(help="Added to the arguments of every job, behind --.")] = None,
    size: Annotated[str | None, typer.Option(metavar="small|full", help="full is for GPUs. (default: small)")] = None,
    file: Annotated[Path | None, typer.Option(help="An experiment of your own, as TOML or JSON.")] = None,
    show: Reference = None,
    cancel: Reference = None,
    listing: Annotated[bool, typer.Option("--list", help="Those there are, and those that were started.")] = False,
    watch: Annotated[
        bool, typer.Option("--follow", help="Stay until all jobs have ended, and show the table.")
    ] = False,
    output: OutputOption = Output.TABLE,
) -> None:
    """Run a set of jobs that differ in some parameters, and compare what they measured.

    rekindle experiment shuffle --follow

    rekindle experiment --file my.toml --follow
    """
    _refuse_unless_one({"NAME": name, "--file": file, "--show": show, "--cancel": cancel, "--list": listing})
    with connect(context) as client:
        if listing:
            return _list(client, output)
        if cancel is not None:
            found = client.cancel_experiment(find_experiment(client, cancel)["id"])
        elif show is not None:
            found = client.experiment(find_experiment(client, show)["id"])
        else:
            body = {"builtin": name} if file is None else read_experiment(file)
            body = experiment_with_code(client, settings_of(context), body)
            found = client.submit_experiment(body | request_body.given(size=size, args=args))
        if watch:
            raise typer.Exit(_follow(client, found, output))
    return _show(found, output, with_table=show is not None)


def find_experiment(client: Client, reference: str) -> ExperimentSummary:
    """The experiment that a person means: by number, id or name (the newest). Raises ProblemError where none is."""
    known = client.experiments(limit=_SEARCHED)
    for one in known:
        if reference in (str(one["number"]), f"#{one['number']}", one["id"], one["name"]):
            return one
    newest = ", ".join(f"{one['number']} {sanitize_line(one['name'])}" for one in known[:5]) or "none at all"
    detail = f"No experiment is called {reference!r}. Newest: {newest}."
    raise ProblemError({"title": "Unknown experiment", "status": 404, "detail": detail})


def _refuse_unless_one(given: dict[str, Any]) -> None:
    named = [word for word, value in given.items() if value]
    if len(named) != 1:
        raise typer.BadParameter(f"give one of {', '.join(given)}" + (f", not {' and '.join(named)}" if named else ""))


def _list(client: Client, output: Output) -> None:
    builtins, started = client.builtin_experiments(), client.experiments()
    match output:
        case Output.JSON:
            show_json({"builtin": builtins, "started": started})
        case Output.ID:
            show_ids(one["id"] for one in started)
        case Output.TABLE:
            out().print(comparison_table.built_in_table(builtins))
            if started:
                out().print()
                out().print(comparison_table.summary_table(started))


def _follow(client: Client, found: Experiment, output: Output) -> ExitCode:
    """Say of each job when it has ended, then show the table. Ctrl-C leaves the jobs alone."""
    patiently, told, identity = Patience(note), set[str](), found["id"]
    try:
        note(_begun(found))
        while True:
            for trial in found["trials"]:
                if trial["job"] not in told and _rests(trial):
                    told.add(trial["job"])
                    note(f"{len(told)} of {found['jobs']}: {_ended(trial)}")
            if all(map(_rests, found["trials"])):
                break
            time.sleep(_POLL)
            found = patiently(lambda: client.experiment(identity))
    except KeyboardInterrupt:
        note(f"The jobs go on. Come back with: rekindle experiment --show {identity} --follow")
        return ExitCode.INTERRUPTED
    _show(found, output, with_table=True)
    return _worst(found)


def _rests(trial: Trial) -> bool:
    """Nothing more will happen to it by itself."""
    return fate(trial) is not None


def _worst(experiment: Experiment) -> ExitCode:
    fates = {fate(trial) for trial in experiment["trials"]}
    order = (ExitCode.FAILED, ExitCode.CANCELLED, ExitCode.HELD)
    return next((each for each in order if each in fates), ExitCode.SUCCEEDED)


def _begun(experiment: Experiment) -> str:
    jobs = "1 job" if experiment["jobs"] == 1 else f"{experiment['jobs']} jobs"
    return f"{sanitize_line(experiment['name'])} is experiment {experiment['number']} ({experiment['id']}): {jobs}"


def _ended(trial: Trial) -> str:
    took = "" if trial["seconds"] is None else f" in {wording.duration(trial['seconds'])}"
    bad = trial["state"] != "succeeded" and trial["outcome"]
    why = f": {wording.outcome(trial['outcome'])}" if bad and trial["outcome"] else ""
    return sanitize_line(f"{label(trial['parameters'])} {trial['state']}{took}{why}")


def _show(experiment: Experiment, output: Output, *, with_table: bool) -> None:
    match output:
        case Output.JSON:
            show_json(experiment)
        case Output.ID:
            show_ids([experiment["id"]])
        case Output.TABLE if with_table:
            _print_table(experiment)
        case Output.TABLE:
            out().print(_begun(experiment))
            out().print(f"See its table with: rekindle experiment --show {experiment['id']} --follow")
    sys.stdout.flush()


def _print_table(experiment: Experiment) -> None:
    if experiment["title"]:
        out().print(sanitize_line(experiment["title"]))
    out().print(comparison_table.comparison(experiment))
    for each in experiment["notes"]:
        out().print(sanitize_line(each))
    out().print(f"Measured on {comparison_table.machine_line(experiment)}.")
