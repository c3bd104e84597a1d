"""Rows and run directories as responses."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from rekindle.contract.job import HIDDEN, JobSpec, TargetKind
from rekindle.contract.run_dir.attempt_history import AttemptInfo, replayed_steps
from rekindle.contract.run_dir.attempt_samples import UsageSample
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.run_dir.placeholders import read_arguments
from rekindle.contract.states import HOLDING_SLOTS, TERMINAL, JobState
from rekindle_service.config.home import Home
from rekindle_service.experiments.comparison import Measure, best_of, best_result, compare, default_measures
from rekindle_service.experiments.matrix import MAX_JOBS, Trial
from rekindle_service.experiments.wording import result_text
from rekindle_service.jobs.overview import reason
from rekindle_service.jobs.quotas import owner_of, slots_wanted
from rekindle_service.jobs.scheduler_health import Prospect
from rekindle_service.jobs.submitter import Draft
from rekindle_service.jobs.time_breakdown import occupied_seconds
from rekindle_service.launch.registry import launcher_of, takes_slots
from rekindle_service.run_readers.metrics import Series, read_run_series
from rekindle_service.run_readers.ranks import read_ranks
from rekindle_service.run_readers.usage import latest_usage
from rekindle_service.schemas.attempt_json import AttemptPublic
from rekindle_service.schemas.experiment_json import BestResultPublic, ExperimentPublic, ExperimentSummary, TrialPublic
from rekindle_service.schemas.job_json import DisplacedJob, JobPublic, ValidatedJob
from rekindle_service.schemas.job_requests import RankRange
from rekindle_service.schemas.queue_json import OverviewItem, QueuedJob
from rekindle_service.schemas.rank_json import RankPublic, UsagePublic
from rekindle_service.store.tables import Attempt, Experiment, Job

_JOB_COLUMNS = tuple(name for name in JobPublic.model_fields if name in Job.model_fields)
_MAX_LOGGED = 1000
_MAX_USAGE_AGE = 20.0  # seconds for which a sample shows what a rank uses now


def job_public(job: Job) -> JobPublic:
    """The columns of a job take precedence over its spec: a person may have changed them since submission."""
    spec = job.spec.to_json()
    return JobPublic.model_validate(
        {
            **spec,
            **{name: getattr(job, name) for name in _JOB_COLUMNS},
            "reason": reason(job),
            "env": {**dict.fromkeys(spec["env"], HIDDEN), **spec["env_from"]},
            "ranks": {"min": spec["min_ranks"], "max": spec["max_ranks"]},
            "nodes": {"min": spec["min_nodes"], "max": spec["nodes"]},
            "slurm": None if spec["slurm"] is None else {**spec["slurm"], **_slurm_shown(job)},
            "target": {"kind": spec["kind"], "value": spec["target"]},
        }
    )


def validated_job(draft: Draft, prospect: Prospect, may_read: Callable[[str | None], bool]) -> ValidatedJob:
    """``may_read``: whether the jobs of an owner may be named."""
    job, spec = draft.job, draft.job.spec
    job.queue_position, job.waiting_for = prospect.position, prospect.waiting_for
    return ValidatedJob.model_validate(
        {
            **dict(job_public(job)),
            "command": _command(spec),
            "slots": slots_wanted(spec),
            "devices": list(prospect.devices),
            "code_files": draft.code_files,
            "code_bytes": draft.code_bytes,
            "starts_in": prospect.starts_in,
            "reason": "" if prospect.starts_in == 0 else reason(job),
            "displaces": [_displaced_job(each, kind, may_read) for each, kind in prospect.displaced],
        }
    )


def _command(spec: JobSpec) -> list[str]:
    match spec.kind:
        case TargetKind.SCRIPT:
            target = [spec.target]
        case TargetKind.MODULE:
            target = ["-m", spec.target]
        case TargetKind.RECIPE:
            target = ["-m", f"rekindle.recipes.{spec.target}"]
    return [spec.python, *target, *spec.args]


def _displaced_job(job: Job, kind: str, may_read: Callable[[str | None], bool]) -> DisplacedJob:
    if not may_read(job.owner):
        return DisplacedJob(kind=kind)
    return DisplacedJob(kind=kind, id=job.id, number=job.number, name=job.name, owner=owner_of(job))


def excluded_nodes(jobs: Iterable[Job]) -> dict[str, str]:
    """That the jobs have found: the reason by host."""
    now, found = time.time(), [(job.slurm or {}).get("excluded", {}) for job in jobs]
    return {host: node["reason"] for nodes in found for host, node in nodes.items() if node["until"] > now}


def _slurm_shown(job: Job) -> dict[str, Any]:
    """What Slurm said of a Slurm job that is over is not followed to its end."""
    shown = ("job_id", "state", "reason", "hosts") if job.state in HOLDING_SLOTS else ("job_id", "hosts")
    column = job.slurm or {}
    return {**{name: column[name] for name in shown if name in column}, "excluded": excluded_nodes([job])}


def queued_job(job: Job) -> QueuedJob:
    spec = job.spec
    return QueuedJob(
        position=job.queue_position,
        job=job.id,
        number=job.number,
        name=job.name,
        owner=owner_of(job),
        priority=job.priority,
        ranks=RankRange(min=spec.min_ranks, max=spec.max_ranks),
        slots=slots_wanted(spec),
        device=(",".join(spec.device_names) or spec.device_kind) if takes_slots(spec) else launcher_of(spec).name,
        intent=job.intent,
        waiting_for=job.waiting_for,
        reason=reason(job),
        estimated_start_at=job.estimated_start_at,
        preemptions=job.preemptions,
        created_at=job.created_at,
    )


def overview_job(job: Job) -> OverviewItem:
    return OverviewItem(kind="job", reason=reason(job), at=job.ended_at or job.started_at, job=job_public(job))


def attempts_public(attempts: Sequence[Attempt]) -> list[AttemptPublic]:
    """All attempts of a job: how many steps of one were replayed follows from those after it."""
    replayed = replayed_steps(attempts)
    return [
        AttemptPublic(
            **attempt.model_dump(include=set(AttemptPublic.model_fields)),
            state="running" if attempt.ended_at is None else "ended",
            replayed_steps=replayed[attempt.number],
            args=None,
        )
        for attempt in attempts
    ]


def with_arguments(attempt: AttemptPublic, job: Job, run_dir: RunDir) -> AttemptPublic:
    args = read_arguments(run_dir, attempt.number)
    return attempt if args in (None, job.spec.args) else attempt.model_copy(update={"args": args})


def ranks_public(job: Job, run_dir: RunDir, attempt: AttemptInfo) -> list[RankPublic]:
    """Every rank of an attempt; none is running where the job holds no slots."""
    ended = job.state not in HOLDING_SLOTS
    remote = launcher_of(job.spec).is_remote
    rows = read_ranks(run_dir, attempt, over=ended, remote=remote)
    if job.stalled is not None:
        rows = [replace(row, steps_per_second=None) for row in rows]  # the script's latest word is of the past
    sample = None if ended else latest_usage(run_dir.root, run_dir.attempt(attempt.number).usage)
    if sample is None or time.time() - sample.at >= _MAX_USAGE_AGE:
        return [RankPublic(**asdict(row)) for row in rows]
    each = job.spec.devices_per_rank
    usage = {row.rank: usage_public(sample, row.rank, each) for row in rows if remote or row.process_state is not None}
    timeout, seconds = sample.hang_timeout, sample.without_progress
    return [
        RankPublic(**asdict(row), usage=usage.get(row.rank), hang_timeout=timeout, without_progress=seconds)
        for row in rows
    ]


def usage_public(sample: UsageSample, rank: int, devices_per_rank: int) -> UsagePublic | None:
    """What one rank uses; None where the sample does not cover it."""
    usage = sample.of_rank(rank)
    if usage is None:
        return None
    return UsagePublic(**asdict(usage), at=sample.at, devices=sample.devices_of(rank, devices_per_rank))


def experiment_summary(experiment: Experiment, states: Mapping[JobState, int]) -> ExperimentSummary:
    """``states``: how many of its jobs are in which."""
    return ExperimentSummary(
        **experiment.model_dump(include={"id", "number", "name", "owner", "title", "command", "created_at"}),
        over=all(state in TERMINAL for state in states),
        jobs=sum(states.values()),
        states={state.value: count for state, count in states.items()},
    )


def experiment_public(
    experiment: Experiment, jobs: Sequence[Job], attempts: Mapping[str, Sequence[Attempt]], home: Home
) -> ExperimentPublic:
    """``attempts``: by job."""
    """With a table of the current results: running jobs are included with their latest values."""
    series = _series_of(jobs, home)
    measures = _measures(experiment.definition, series)
    values = _values(series, measures)
    trials = _trials(jobs)
    rows = compare(trials, values, measures)
    return ExperimentPublic.model_validate(
        {
            **dict(experiment_summary(experiment, Counter(job.state for job in jobs))),
            "definition": experiment.definition,
            "machine": experiment.machine,
            "notes": experiment.notes,
            "parameters": list(dict.fromkeys(key for trial in trials for key in trial.parameters)),
            "measures": [measure.heading for measure in measures],
            "metrics": [measure.metric for measure in measures],
            "goals": [measure.direction for measure in measures],
            "best": best_of(rows, measures),
            "logged": list(dict.fromkeys(name for each in series for name in each))[:_MAX_LOGGED],
            "rows": rows,
            "trials": [
                _trial_public(job, attempts.get(job.id, []), each) for job, each in zip(jobs, values, strict=True)
            ],
        }
    )


def experiment_best(experiment: Experiment, jobs: Sequence[Job], home: Home) -> BestResultPublic:
    series = _series_of(jobs, home)
    measures = _measures(experiment.definition, series)
    found = best_result(compare(_trials(jobs), _values(series, measures), measures), measures)
    return BestResultPublic() if found is None else BestResultPublic(text=result_text(found), **asdict(found))


def _series_of(jobs: Sequence[Job], home: Home) -> list[Series]:
    many = len(jobs) > MAX_JOBS  # an array, of which those that have not started have no files to be read
    return [{} if many and not job.attempt else read_run_series(home.run_dir(job.id)) for job in jobs]


def _measures(definition: Mapping[str, Any], series: Sequence[Series]) -> list[Measure]:
    return [Measure(**each) for each in definition.get("measure", [])] or default_measures(series)


def _values(series: Sequence[Series], measures: Sequence[Measure]) -> list[list[float | None]]:
    """A number for each job and measure."""
    return [
        [measure.of([point.value for point in each.get(measure.metric, [])]) for measure in measures] for each in series
    ]


def _trials(jobs: Sequence[Job]) -> list[Trial]:
    return [Trial(job.trial["parameters"], job.trial["repeat"]) for job in jobs]


def _trial_public(job: Job, attempts: Sequence[Attempt], values: list[float | None]) -> TrialPublic:
    seconds = occupied_seconds(job, attempts, time.time())
    columns = job.model_dump(include={"number", "name", "state", "intent", "restarts", "outcome"})
    return TrialPublic.model_validate({**columns, **job.trial, "job": job.id, "seconds": seconds, "values": values})
