"""From the JSON of an experiment to its jobs' submissions: a builtin looked up, the matrix expanded."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from rekindle_service.api.experiment_schemas import ExperimentCreate
from rekindle_service.api.job_request import submission_of
from rekindle_service.api.request_schemas import LONGEST_NAME, JobCreate
from rekindle_service.api.validation import field_errors
from rekindle_service.experiments import built_in
from rekindle_service.experiments.matrix import MAX_JOBS, Trial, count, expand, job_request, label
from rekindle_service.experiments.submitter import TrialSubmission, in_experiment
from rekindle_service.jobs.submission import FieldError, SubmissionError
from rekindle_service.machine.devices import Machine
from rekindle_service.suggestions import did_you_mean

_HIDDEN = "•••"


@dataclass(frozen=True, slots=True)
class Plan:
    """What an experiment is to do. ``notes`` tell what this machine has no room for."""

    name: str
    asked: ExperimentCreate
    request: ExperimentCreate  # what was asked for, with a builtin's definition in the place of its name
    trials: list[TrialSubmission]
    notes: list[str]

    def command(self) -> str | None:
        """How to do a builtin again; an experiment of a user's own is in ``definition`` alone."""
        if self.asked.builtin is None:
            return None
        size = [] if self.asked.size == "small" else ["--size", self.asked.size]
        more = ["--", *self.asked.args] if self.asked.args else []
        return shlex.join(["rekindle", "experiment", self.asked.builtin, *size, "--follow", *more])

    def definition(self) -> dict[str, Any]:
        """The request in full, without the values of environment variables, any of which may be a secret."""
        told = self.request.model_dump(mode="json", exclude={"builtin", "size", "name"})
        env = told["base"].get("env")
        if isinstance(env, dict):
            told["base"]["env"] = dict.fromkeys(env, _HIDDEN)
        return told


def plan_of(body: ExperimentCreate, machine: Machine) -> Plan:
    """Raises SubmissionError, with the fields of the request, for what cannot be a set of jobs."""
    request = body if body.builtin is None else _built_in(body)
    matrices = request.matrix or []
    size = count(matrices, request.repeats)
    if size > MAX_JOBS:
        hint = "fewer values, or several experiments"
        raise SubmissionError([FieldError("matrix", f"at most {MAX_JOBS} jobs in all", size, hint)])
    if "name" in request.base:
        hint = "the jobs are named after the experiment and their parameters"
        raise SubmissionError([FieldError("base.name", "must be left out", request.base["name"], hint)])
    trials = expand(matrices, request.repeats)
    notes: list[str] = []
    if body.builtin is not None:
        trials, notes = fitting(trials, machine)
    name = body.name or body.builtin or "experiment"
    return Plan(name, body, request, _submissions(name, request, trials), notes)


def fitting(trials: Sequence[Trial], machine: Machine) -> tuple[list[Trial], list[str]]:
    """The cells that this machine has slots for, and a note about the others; all of them where none would be left."""
    kind = "cuda" if machine.count("cuda") else "cpu"
    slots = machine.count(kind)
    kept = [trial for trial in trials if _ranks(trial) <= slots]
    left_out = sorted({_ranks(trial) for trial in trials} - {_ranks(trial) for trial in kept})
    if not left_out or not kept:
        return list(trials), []
    advice = f"; REKINDLE_CPU_SLOTS={left_out[-1]} for the server makes room" if kind == "cpu" else ""
    ranks = " and ".join(map(str, left_out))
    return kept, [f"Left out: {ranks} ranks, since this server has {slots} {kind} slots{advice}."]


def _ranks(trial: Trial) -> int:
    ranks = trial.parameters.get("ranks", 1)
    return ranks if isinstance(ranks, int) else 1


def _built_in(body: ExperimentCreate) -> ExperimentCreate:
    name = str(body.builtin)
    if name not in built_in.names():
        hint = did_you_mean(name, built_in.names())
        raise SubmissionError([FieldError("builtin", "must be an experiment of rekindle", name, hint)])
    if body.size not in built_in.SIZES:
        rule = f"must be {' or '.join(built_in.SIZES)}"
        raise SubmissionError([FieldError("size", rule, body.size, did_you_mean(body.size, built_in.SIZES))])
    return ExperimentCreate.model_validate({**built_in.definition(name, body.size), "args": body.args})


def _submissions(name: str, request: ExperimentCreate, trials: Sequence[Trial]) -> list[TrialSubmission]:
    submissions: list[TrialSubmission] = []
    errors: list[FieldError] = []
    for number, trial in enumerate(trials, start=1):
        asked = job_request(
            request.base, request.args, trial, name=_job_name(name, number, trial), seed_option=request.seed_option
        )
        try:
            submissions.append((trial, submission_of(JobCreate.model_validate(asked))))
        except ValidationError as error:
            found = [in_experiment(each, trial) for each in _errors(error)]
            errors += [each for each in found if each not in errors]
    if errors:
        raise SubmissionError(errors)
    return submissions


def _errors(error: ValidationError) -> list[FieldError]:
    located: list[Mapping[str, Any]] = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
    told = field_errors(located, JobCreate)
    return [replace(FieldError(**each), field="" if each["field"] == "body" else each["field"]) for each in told]


def _job_name(experiment: str, number: int, trial: Trial) -> str:
    """``shuffle 2: --no-shuffle=yes``, as far as that can be shown."""
    full = f"{experiment[: LONGEST_NAME // 2]} {number}: {label(trial.parameters)}"[:LONGEST_NAME]
    return full if full.isprintable() else f"{experiment[: LONGEST_NAME // 2]} {number}"
