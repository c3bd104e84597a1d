"""`rekindle experiment`: a set of jobs that differ in some parameters, and the tables that compare them."""

import json
import sys
import time
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text
from typer import Argument, Option

from rekindle_service.cli import formatting
from rekindle_service.cli.context import YesOption, connect, settings_of
from rekindle_service.cli.job_interpreter import interpreter, send_with_interpreter
from rekindle_service.cli.layout import Table
from rekindle_service.cli.source_code import send_directory
from rekindle_service.cli.terminal import (
    ExitCode,
    Output,
    OutputOption,
    confirm,
    exit_code_for,
    note,
    note_connection,
    out,
    print_answer,
    print_line,
    working,
)
from rekindle_service.client import BuiltIn, Client, ComparisonRow, Experiment, ExperimentSummary, Trial, is_settled
from rekindle_service.client.api_connection import drop_unset
from rekindle_service.config.client_settings import ClientSettings
from rekindle_service.experiments.comparison import significant
from rekindle_service.experiments.trials import format_value, label, shown_key

_POLL_INTERVAL = 1.0  # seconds
_OUTPUT_LINES = 20


def experiment(
    context: typer.Context,
    name: Annotated[str | None, Argument(metavar="NAME", help="A built-in experiment; --list lists them.")] = None,
    args: Annotated[
        list[str] | None, Argument(metavar="ARGS", help="After --: arguments added to those of every job.")
    ] = None,
    size: Annotated[str | None, Option(metavar="small|full", help="full needs GPUs. (default: small)")] = None,
    file: Annotated[Path | None, Option(help="Run the experiment that this file defines, as TOML or JSON.")] = None,
    parallel: Annotated[int | None, Option(help="Jobs that run at once. (default: no limit)", min=1)] = None,
    show: Annotated[
        str | None, Option(metavar="EXPERIMENT", help="Show this experiment, by id, number or name (the latest of it).")
    ] = None,
    cancel: Annotated[
        str | None, Option(metavar="EXPERIMENT", help="Cancel the unfinished jobs of this experiment.")
    ] = None,
    resume: Annotated[
        str | None, Option(metavar="EXPERIMENT", help="Resume the failed jobs of this experiment.")
    ] = None,
    delete: Annotated[
        str | None, Option(metavar="EXPERIMENT", help="Delete this experiment, its jobs and their files.")
    ] = None,
    list_all: Annotated[bool, Option("--list", help="List the built-in and the submitted experiments.")] = False,
    follow: Annotated[bool, Option("--follow", help="Wait until all jobs have ended, then print the table.")] = False,
    yes: YesOption = False,
    output: OutputOption = "table",
) -> None:
    """Run jobs that differ in some parameters, and compare the results.

    rekindle experiment shuffle --follow

    rekindle experiment --file my.toml --follow
    """
    chosen = {"--show": show, "--cancel": cancel, "--resume": resume, "--delete": delete}
    given = {"NAME": name, "--file": file, **chosen, "--list": list_all}
    named = [word for word, value in given.items() if value]
    if len(named) != 1:
        raise typer.BadParameter(f"pass one of {', '.join(given)}" + (f", not {' and '.join(named)}" if named else ""))
    with connect(context) as client:
        if list_all:
            return _list(client, output)
        if delete is not None:
            return _delete(client, client.find_experiment(delete), output, yes=yes)
        if cancel is not None:
            with working("Cancelling the jobs"):
                found = client.cancel_experiment(client.find_experiment(cancel)["id"])
        elif resume is not None:
            with working("Resuming the jobs"):
                found = client.resume_experiment(client.find_experiment(resume)["id"])
        elif show is not None:
            found = client.experiment(client.find_experiment(show)["id"])
        else:
            body = {"builtin": name} if file is None else read_experiment(file)
            body |= drop_unset(size=size, args=args, parallel=parallel)
            body = _with_code(client, settings_of(context), body)
            with working("Submitting the jobs"):
                found = send_with_interpreter(settings_of(context), client.submit_experiment, body, "base")
        if follow or show is None:
            raise typer.Exit(finish(client, found, output, follow=follow))
    return _print(found, output, with_table=True)


def finish(client: Client, found: Experiment, output: Output, *, follow: bool) -> ExitCode:
    """Print what was submitted; with ``follow`` wait for completion of all jobs first. Returns the exit code."""
    if follow:
        return _follow(client, found, output)
    _print(found, output, with_table=False)
    return ExitCode.SUCCEEDED


def _delete(client: Client, found: ExperimentSummary, output: Output, *, yes: bool) -> None:
    named = f"experiment {found['number']} ({found['name']})"
    jobs = formatting.number_of(found["jobs"], "job")
    if not yes:
        confirm(f"Delete {named} with {jobs} and all files?")
    with working("Deleting the jobs"):
        client.delete_experiment(found["id"])
    if not print_answer(output, found, [found["id"]]):
        print_line(f"Deleted {named}")


# --- the definition


def read_experiment(path: Path) -> dict[str, Any]:
    """The body of ``POST /experiments`` from a file; paths in it are relative to its directory.

    A script without ``code`` takes the whole directory along. Raises BadParameter for a file that cannot be read.
    """
    try:
        text = path.read_text()
        body = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"--file {path}: {error}") from None
    if not isinstance(body, dict):
        raise typer.BadParameter(f"--file {path}: must contain an object, not a {type(body).__name__}")
    base = body.get("base", {})
    return {"name": path.stem, **body, "base": _absolute(base, path.parent)} if isinstance(base, dict) else body


def _absolute(base: dict[str, Any], directory: Path) -> dict[str, Any]:
    code, python = base.get("code"), base.get("python")
    absolute = dict(base)
    if isinstance(code, dict) and isinstance(code.get("path"), str):
        absolute["code"] = {**code, "path": str((directory / code["path"]).resolve())}
    elif code is None and not {"recipe", "module"} & base.keys():
        absolute["code"] = {"path": str(directory.resolve())}
    if isinstance(python, str):
        absolute["python"] = interpreter(python, directory)
    return absolute


def _with_code(client: Client, settings: ClientSettings, body: dict[str, Any]) -> dict[str, Any]:
    """``body`` with code that the server can read: a directory is uploaded to a server on another machine."""
    match body:
        case {"base": {"code": {"path": str(path)}} as base}:
            return {**body, "base": {**base, "code": send_directory(client, settings, Path(path), base)}}
    return body


# --- output


def _list(client: Client, output: Output) -> None:
    builtins, submitted = client.builtin_experiments(), client.experiments()
    answer = {"builtin": builtins, "started": submitted}
    if not print_answer(output, answer, (one["id"] for one in submitted)):
        out().print(builtin_table(builtins))
        if submitted:
            out().print()
            out().print(summary_table(submitted))


def _follow(client: Client, found: Experiment, output: Output) -> ExitCode:
    """Note each job that has ended, then print the table. Ctrl-C does not affect the jobs."""
    client, reported, experiment_id = client.reconnecting(note_connection), set[str](), found["id"]
    try:
        note(_title(found))
        while True:
            for trial in found["trials"]:
                if trial["job"] not in reported and is_settled(trial):
                    reported.add(trial["job"])
                    note(f"{len(reported)} of {found['jobs']}: {_ended(trial)}")
            if all(map(is_settled, found["trials"])):
                break
            time.sleep(_POLL_INTERVAL)
            found = client.experiment(experiment_id)
    except KeyboardInterrupt:
        note(f"The jobs keep running. Follow them again with: rekindle experiment --show {experiment_id} --follow")
        return ExitCode.INTERRUPTED
    _print(found, output, with_table=True)
    if output == "table" and found["definition"].get("show_output"):
        _print_output(client, found)
    return _worst(found)


def _print_output(client: Client, found: Experiment) -> None:
    """Print the last lines of each rank of each job."""
    for trial in found["trials"]:
        out().print()
        print_line(f"{label(trial['parameters'])}, job #{trial['number']}:")
        attempt = client.job(trial["job"])["attempt"]
        for row in client.ranks(trial["job"]):
            tail = client.log_tail(trial["job"], row["rank"], "stdout", attempt, _OUTPUT_LINES)
            for line in tail.data.decode(errors="replace").splitlines():
                print_line(line)


def _worst(experiment: Experiment) -> ExitCode:
    codes = {exit_code_for(trial) for trial in experiment["trials"] if not trial["pruned"]}
    order = (ExitCode.FAILED, ExitCode.CANCELLED, ExitCode.HELD)
    return next((code for code in order if code in codes), ExitCode.SUCCEEDED)


def _title(experiment: Experiment) -> str:
    named = f"Experiment {experiment['number']} ({experiment['id']}), {experiment['name']}"
    return f"{named}: {formatting.number_of(experiment['jobs'], 'job')}"


def _ended(trial: Trial) -> str:
    took = "" if trial["seconds"] is None else f" in {formatting.duration(trial['seconds'])}"
    ending = trial["outcome"]
    why = "" if ending is None or trial["state"] == "succeeded" else f": {formatting.outcome(ending)}"
    return f"{label(trial['parameters'])} {trial['pruned'] or trial['state'] + took + why}"


def _print(experiment: Experiment, output: Output, *, with_table: bool) -> None:
    if print_answer(output, experiment, [experiment["id"]]):
        pass
    elif with_table:
        if experiment["title"]:
            print_line(experiment["title"])
        out().print(comparison_table(experiment))
        if any(experiment["best"]):
            print_line("* best of its column")
        for each in experiment["notes"]:
            print_line(each)
        print_line(f"Measured on {machine_line(experiment)}.")
        if experiment["best_command"]:
            print_line(f"B{experiment['result']['text'][1:]}. Train it:")
            print_line(f"  {experiment['best_command']}")
    else:
        print_line(_title(experiment))
        print_line(f"Print its table with: rekindle experiment --show {experiment['id']} --follow")
    sys.stdout.flush()


# --- tables


def comparison_table(experiment: Experiment) -> Table:
    """A row for each combination of parameters; states have a column unless all jobs succeeded.

    The rows of an array also name their jobs, and always show the states, with the failures if there are any.
    """
    headings = [*map(shown_key, experiment["parameters"]), *experiment["measures"]]
    all_succeeded = set(experiment["states"]) == {"succeeded"}
    rows = [_cells(experiment, index, row) for index, row in enumerate(experiment["rows"])]
    if experiment["parameters"] != ["index"]:
        columns = headings + ([] if all_succeeded else ["state"])
        return Table(columns, [cells[: len(columns)] for cells in rows], cut={"state": 20}, wrap="state")
    columns = [*headings, "job", "state"] + ([] if all_succeeded else ["failure"])
    for cells, row in zip(rows, experiment["rows"], strict=True):
        number, failure = _job_cells(experiment, row)
        cells[-1:] = [number, cells[-1], failure][: len(columns) - len(headings)]
    return Table(columns, rows, cut={"failure": 20}, wrap="failure")


def _job_cells(experiment: Experiment, row: ComparisonRow) -> tuple[str, str]:
    """The jobs of a row, and why the first of them that failed did."""
    trials = [experiment["trials"][index] for index in row["trials"]]
    failed = [each["outcome"] for each in trials if each["state"] == "failed" and each["outcome"] is not None]
    return ", ".join(f"#{each['number']}" for each in trials), formatting.outcome(failed[0]) if failed else ""


def _cells(experiment: Experiment, index: int, row: ComparisonRow) -> list[str | Text]:
    parameters = [
        format_value(row["parameters"][key]) if key in row["parameters"] else "" for key in experiment["parameters"]
    ]
    shown = [value_text(*pair) for pair in zip(row["values"], row["spread"], strict=True)]
    columns = zip(shown, experiment["best"], strict=True)
    values = [Text(f"{value} *", style="bold green") if index in best else value for value, best in columns]
    trials = [experiment["trials"][index] for index in row["trials"]]
    pruned = [each["pruned"] for each in trials if each["pruned"]]
    states = dict.fromkeys(each["state"] for each in trials if not each["pruned"])
    return [*parameters, *values, Text(", ").join([*map(formatting.state_text, states), *map(Text, pruned)])]


def value_text(value: float | None, spread: tuple[float, float] | None) -> str:
    """``0.9721``, or ``0.9721 (0.9694 to 0.9749)`` for the mean of several."""
    if value is None:
        return formatting.ABSENT
    return significant(value) + ("" if spread is None else f" ({significant(spread[0])} to {significant(spread[1])})")


def machine_line(experiment: Experiment) -> str:
    """``AMD EPYC, 2 cores, 8.2 GB, torch 2.11.0, load 0.4 at the start``."""
    machine = experiment["machine"]
    parts = [
        machine.get("processor", "unknown CPU"),
        f"{machine.get('cores')} cores",
        formatting.size(machine.get("memory") or 0),
        *machine.get("gpus", []),
        f"torch {machine.get('torch')}",
        f"load {machine.get('load')} at the start",
    ]
    return ", ".join(map(str, parts))


def builtin_table(builtins: list[BuiltIn]) -> Table:
    """One row per name, with its sizes and their numbers of jobs."""
    rows: dict[str, tuple[str, list[str]]] = {}
    for each in builtins:
        _, sizes = rows.setdefault(each["name"], (each["title"], []))
        sizes.append(f"{each['size']} ({formatting.number_of(each['jobs'], 'job')})")
    listed = ([name, ", ".join(sizes), title] for name, (title, sizes) in rows.items())
    return Table(("NAME", "SIZES", "COMPARES"), listed, cut={"COMPARES": 30}, wrap="COMPARES")


def summary_table(experiments: list[ExperimentSummary]) -> Table:
    columns = ("#", "ID", "NAME", "JOBS", "STATES", "SUBMITTED")
    return Table(columns, map(_summary_row, experiments), cut={"NAME": 8, "STATES": 12}, drop=("SUBMITTED",))


def _summary_row(one: ExperimentSummary) -> list[str | Text]:
    states = ", ".join(f"{count} {state}" for state, count in one["states"].items())
    name, submitted = one["name"], formatting.clock(one["created_at"])
    return [str(one["number"]), one["id"], name, str(one["jobs"]), states, submitted]
