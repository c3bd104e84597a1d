"""The JSON of answers by name. A checker knows its keys from the models of the server, which are not loaded here."""

from typing import TYPE_CHECKING, Any, Generic, TypeVar

__all__ = ["Attempt", "AuditEntry", "BestResult", "BuiltIn", "Checkpoint", "ComparisonRow", "Configuration"]
__all__ += ["Device", "Devices", "DigestedSteps", "DiskUsage", "DisplacedJob", "Experiment"]
__all__ += ["ExperimentSummary", "Fault", "FaultInjection", "Job", "JobDiff", "JobEvent", "Layers", "LogLines"]
__all__ += ["Me", "MetricName", "MetricSeries", "NewToken", "Outcome", "Overview", "OverviewItem", "OwnerShare"]
__all__ += ["PruneItem", "PruneResult", "Queue", "QueuedJob", "Rank", "RankGroup", "Snapshot", "SnapshotList"]
__all__ += ["StepTimes", "Story", "StoryFrame", "TimeBreakdown", "TimedLine", "Token", "Trial", "ValidatedJob"]

T = TypeVar("T")


class Json(dict[str, Any], Generic[T]):
    """The JSON of a model: any dictionary at run time, and to mypy one with the model's fields as keys.

    Times are ISO 8601 in UTC, durations are seconds, sizes are bytes. See ``tests/json_types.py``.
    """


if TYPE_CHECKING:
    from rekindle.contract import outcome
    from rekindle_service.experiments import comparison
    from rekindle_service.jobs import job_story, source_lines, step_times
    from rekindle_service.retention import rules
    from rekindle_service.run_readers import merged_log
    from rekindle_service.schemas import (
        access_json,
        attempt_json,
        digest_json,
        disk_json,
        experiment_json,
        job_json,
        machine_json,
        queue_json,
        rank_json,
    )

    Outcome = Json[outcome.Outcome]
    Job = Json[job_json.JobPublic]
    Checkpoint = Json[job_json.CheckpointPublic]
    ValidatedJob = Json[job_json.ValidatedJob]
    DisplacedJob = Json[job_json.DisplacedJob]
    Queue = Json[queue_json.Queue]
    QueuedJob = Json[queue_json.QueuedJob]
    OwnerShare = Json[queue_json.OwnerShare]
    Overview = Json[queue_json.Overview]
    OverviewItem = Json[queue_json.OverviewItem]

    Attempt = Json[attempt_json.AttemptPublic]
    Fault = Json[attempt_json.FaultPublic]
    FaultInjection = Json[attempt_json.ChaosPublic]
    JobEvent = Json[attempt_json.EventPublic]
    TimeBreakdown = Json[attempt_json.TimeBreakdown]
    StepTimes = Json[step_times.StepTimes]
    Snapshot = Json[attempt_json.SnapshotPublic]
    SnapshotList = Json[attempt_json.SnapshotList]
    Configuration = Json[attempt_json.ConfigurationPublic]
    Story = Json[job_story.Story]
    RankGroup = Json[job_story.RankGroup]
    StoryFrame = Json[source_lines.StoryFrame]

    Layers = Json[rank_json.LayersPublic]
    Rank = Json[rank_json.RankPublic]
    MetricName = Json[rank_json.MetricName]
    MetricSeries = Json[rank_json.MetricSeries]
    LogLines = Json[rank_json.LogLines]
    TimedLine = Json[merged_log.TimedLine]

    DigestedSteps = Json[digest_json.DigestedSteps]
    JobDiff = Json[digest_json.JobDiff]

    Devices = Json[machine_json.Devices]
    Device = Json[machine_json.DevicePublic]
    DiskUsage = Json[disk_json.DiskUsage]
    PruneResult = Json[disk_json.PruneResult]
    PruneItem = Json[rules.PruneItem]

    Experiment = Json[experiment_json.ExperimentPublic]
    ExperimentSummary = Json[experiment_json.ExperimentSummary]
    Trial = Json[experiment_json.TrialPublic]
    ComparisonRow = Json[comparison.ComparisonRow]
    BestResult = Json[comparison.BestResult]
    BuiltIn = Json[experiment_json.BuiltIn]

    Me = Json[access_json.Me]
    Token = Json[access_json.TokenPublic]
    NewToken = Json[access_json.TokenCreated]
    AuditEntry = Json[access_json.AuditPublic]
else:
    globals().update({name: Json[name] for name in __all__})
