"""From the JSON of a request to submissions, with defaults filled in; an experiment's matrix is expanded to trials."""

import hashlib
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import BaseModel, ValidationError

from rekindle.contract.job import HIDDEN, JobSpec
from rekindle.contract.job_options import TargetKind
from rekindle_service.api.problems import field_errors
from rekindle_service.config.home import new_job_id
from rekindle_service.experiments import built_in
from rekindle_service.experiments.experiment_submitter import TrialSubmission, in_experiment
from rekindle_service.experiments.trials import (
    MAX_JOBS,
    Trial,
    array_trials,
    count,
    expand,
    index_of,
    job_request,
    label,
    parse_array,
    with_index,
)
from rekindle_service.jobs.submission_record import IdempotencyKey
from rekindle_service.machine.monitor import describe_machine
from rekindle_service.machine.slots import Machine
from rekindle_service.schemas.experiment_json import ExperimentCreate
from rekindle_service.schemas.fields import MAX_NAME_LENGTH
from rekindle_service.schemas.job_requests import JobCreate, OptionFields, SlurmRequest
from rekindle_service.store.tables import Experiment
from rekindle_service.submission import CodeOrigin, FieldError, Submission, SubmissionError
from rekindle_service.suggestions import did_you_mean


def keyed(idempotency_key: str | None, body: BaseModel) -> IdempotencyKey | None:
    """The key with the digest of the request: a repeat may order its fields differently and omit what is default."""
    if idempotency_key is None:
        return None
    values = json.dumps(body.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
    return IdempotencyKey(idempotency_key, hashlib.sha256(values.encode()).hexdigest())


def submission_of(body: JobCreate) -> Submission:
    """The request with the defaults of its options; the launcher of the job fills in an interpreter."""
    kind, target = next((kind, target) for kind in TargetKind if (target := getattr(body, kind)) is not None)
    values = {name: value for name, value in body.env.items() if isinstance(value, str)}
    sources = {name: value.reference() for name, value in body.env.items() if not isinstance(value, str)}
    spec = JobSpec.from_json(
        {
            **body.model_dump(include=set(OptionFields.model_fields) - {"env"}),
            "env": values,
            "env_from": sources,
            "name": body.name or _default_name(kind, target),
            "kind": kind,
            "target": target,
            "python": body.python or "",
            **_size(body),
            "slurm": None if (slurm := _slurm_options(body)) is None else slurm.model_dump(),
        }
    )
    code = body.code
    path = None if code is None or code.path is None else Path(code.path)
    fetched = None if code is None or path else CodeOrigin(bundle=code.bundle, git=code.git, ref=code.ref)
    has_size = bool(body.model_fields_set & {"ranks", "devices_per_rank"})
    revision = (
        {}
        if code is None or code.commit is None
        else {"commit": code.commit} | ({"dirty": "yes"} if code.dirty else {})
    )
    return Submission(spec, path, hold=body.hold, has_size=has_size, origin=fetched, revision=revision)


def _slurm_options(body: JobCreate) -> SlurmRequest | None:
    """Several nodes are a request for Slurm."""
    return SlurmRequest() if body.slurm is None and body.nodes.max > 1 else body.slurm


def _size(body: JobCreate) -> dict[str, int]:
    """Ranks and nodes. On Slurm ``ranks`` is the number on all nodes, one on each by default."""
    nodes = {"nodes": body.nodes.max, "min_nodes": body.nodes.min}
    low, high = body.ranks.min, body.ranks.max
    if _slurm_options(body) is None:
        return {"min_ranks": low, "max_ranks": high, **nodes}
    if "ranks" not in body.model_fields_set:
        return {"min_ranks": body.nodes.min, "max_ranks": body.nodes.max, **nodes}
    if low == high and high % body.nodes.max == 0:
        low = high // body.nodes.max * body.nodes.min
    return {"min_ranks": low, "max_ranks": high, **nodes}


def _default_name(kind: TargetKind, target: str) -> str:
    """``train`` for ``/code/train.py``; modules and recipes give their own name."""
    name = PurePosixPath(target).stem if kind is TargetKind.SCRIPT else target
    return name[:MAX_NAME_LENGTH] if name.isprintable() and name.strip() else "job"


def plan_experiment(body: ExperimentCreate, machine: Machine) -> tuple[Experiment, list[TrialSubmission]]:
    """The row of the experiment, and its jobs. Its ``notes`` list the trials that this machine has too few slots for.

    Raises SubmissionError, with the fields of the request, for what cannot be a set of jobs.
    """
    request = body if body.builtin is None else _built_in(body)
    trials = _trials(request)
    if "name" in request.base:
        hint = "jobs are named after the experiment and their parameters"
        raise SubmissionError([FieldError("base.name", "must be omitted", request.base["name"], hint)])
    notes: list[str] = []
    if body.builtin is not None:
        trials, notes = filter_by_capacity(trials, machine)
    name = body.name or body.builtin or ("experiment" if body.array is None else "array")
    row = Experiment(
        id=new_job_id(),
        name=name,
        title=request.title,
        command=_command(body),
        definition=_definition(request),
        machine=describe_machine(machine),
        notes=notes,
        created_at=time.time(),
    )
    return row, _submissions(name, request, trials)


def _trials(request: ExperimentCreate) -> list[Trial]:
    if request.array is not None:
        return array_trials(parse_array(request.array))
    matrices = request.matrix or []
    size = count(matrices, request.repeats)
    if size > MAX_JOBS:
        hint = "give fewer values, or submit several experiments"
        raise SubmissionError([FieldError("matrix", f"exceeds the maximum of {MAX_JOBS} jobs", size, hint)])
    return expand(matrices, request.repeats)


def _command(body: ExperimentCreate) -> str | None:
    """The command that repeats a builtin; None for other experiments, whose ``definition`` says everything."""
    if body.builtin is None:
        return None
    size = [] if body.size == "small" else ["--size", body.size]
    args = ["--", *body.args] if body.args else []
    parallel = [] if body.parallel is None else ["--parallel", str(body.parallel)]
    return shlex.join(["rekindle", "experiment", body.builtin, *size, *parallel, "--follow", *args])


def _definition(request: ExperimentCreate) -> dict[str, Any]:
    """The whole request without the values of environment variables, any of which may be a secret."""
    definition = request.model_dump(mode="json", exclude={"builtin", "size", "name"})
    if request.array is not None and request.parallel is None:
        definition["parallel"] = parse_array(request.array).parallel
    env = definition["base"].get("env")
    if isinstance(env, dict):
        definition["base"]["env"] = {name: HIDDEN if isinstance(value, str) else value for name, value in env.items()}
    return definition


def filter_by_capacity(trials: Sequence[Trial], machine: Machine) -> tuple[list[Trial], list[str]]:
    """The trials that this machine has slots for, and a note about the others; all of them if none would remain."""
    kind = "cuda" if machine.count("cuda") else "cpu"
    slots = machine.count(kind)
    kept = [trial for trial in trials if _devices(trial) <= slots]
    omitted = sorted({_devices(trial) for trial in trials} - {_devices(trial) for trial in kept})
    if not omitted or not kept:
        return list(trials), []
    hint = f"; start the server with REKINDLE_CPU_SLOTS={omitted[-1]} to include them" if kind == "cpu" else ""
    ranks = " and ".join(map(str, omitted))
    return kept, [f"Omitted: {ranks} ranks, since this server has {slots} {kind} slots{hint}."]


def _devices(trial: Trial) -> int:
    ranks, each = (trial.parameters.get(name, 1) for name in ("ranks", "devices_per_rank"))
    return ranks * each if isinstance(ranks, int) and isinstance(each, int) else 1


def _built_in(body: ExperimentCreate) -> ExperimentCreate:
    name = str(body.builtin)
    if name not in built_in.names():
        hint = did_you_mean(name, built_in.names())
        raise SubmissionError([FieldError("builtin", f"unknown built-in experiment {name[:100]!r}", name, hint)])
    own = {"args": body.args, "parallel": body.parallel}
    return ExperimentCreate.model_validate({**built_in.definition(name, body.size), **own})


def _submissions(name: str, request: ExperimentCreate, trials: Sequence[Trial]) -> list[TrialSubmission]:
    submissions: list[TrialSubmission] = []
    errors: list[FieldError] = []
    for number, trial in enumerate(trials, start=1):
        job = _job_request(request, trial, _job_name(name, number, trial))
        try:
            submissions.append((trial, submission_of(JobCreate.model_validate(job))))
        except ValidationError as error:
            found = [in_experiment(each, trial) for each in _job_errors(error)]
            errors += [each for each in found if each not in errors]
    if errors:
        raise SubmissionError(errors)
    return submissions


def _job_request(request: ExperimentCreate, trial: Trial, name: str) -> dict[str, Any]:
    index = index_of(trial.parameters)
    if index is None:
        return job_request(request.base, request.args, trial, name=name, seed_option=request.seed_option)
    plain = Trial({}, 0)
    return with_index(job_request(request.base, request.args, plain, name=name, seed_option=None), index)


def _job_errors(error: ValidationError) -> list[FieldError]:
    """``field`` is empty for the job as a whole."""
    located: list[Mapping[str, Any]] = [{**each, "loc": ("body", *each["loc"])} for each in error.errors()]
    return [
        replace(each, field="" if each.field == "body" else each.field) for each in field_errors(located, JobCreate)
    ]


def _job_name(experiment: str, number: int, trial: Trial) -> str:
    """``shuffle 2: --no-shuffle=yes``, as far as it is printable; ``sweep[7]`` in an array."""
    if (index := index_of(trial.parameters)) is not None:
        return f"{experiment[: MAX_NAME_LENGTH // 2]}[{index}]"
    full = f"{experiment[: MAX_NAME_LENGTH // 2]} {number}: {label(trial.parameters)}"[:MAX_NAME_LENGTH]
    return full if full.isprintable() else f"{experiment[: MAX_NAME_LENGTH // 2]} {number}"
