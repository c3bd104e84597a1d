"""The REST API from Python: ``Client``, which the command line uses, and ``AsyncClient``.

Answers are the server's JSON, described by typed dictionaries: ``-o json`` prints it unchanged, and a field that a
newer server adds does no harm.
"""

from rekindle_service.client.async_client import AsyncClient
from rekindle_service.client.blocking_client import Client
from rekindle_service.client.discovery import Server, find_server, is_local, local_server
from rekindle_service.client.errors import FieldProblem, NoServerError, Problem, ProblemError
from rekindle_service.client.log_follower import AttemptHeader, LogChunk, LogFilter, LogLine
from rekindle_service.client.models import (
    Attempt,
    BuiltIn,
    Configuration,
    Device,
    Devices,
    Experiment,
    ExperimentSummary,
    Fault,
    FaultInjection,
    Interval,
    Job,
    JobEvent,
    MetricSeries,
    Outcome,
    Rank,
    Row,
    Snapshot,
    SnapshotList,
    TimeBreakdown,
    Trial,
)
from rekindle_service.client.reconnect import OnConnectionChange, ReconnectPolicy, is_settled
from rekindle_service.client.transport import Event

__all__ = [
    "AsyncClient",
    "Attempt",
    "AttemptHeader",
    "BuiltIn",
    "Client",
    "Configuration",
    "Device",
    "Devices",
    "Event",
    "Experiment",
    "ExperimentSummary",
    "Fault",
    "FaultInjection",
    "FieldProblem",
    "Interval",
    "Job",
    "JobEvent",
    "LogChunk",
    "LogFilter",
    "LogLine",
    "MetricSeries",
    "NoServerError",
    "OnConnectionChange",
    "Outcome",
    "Problem",
    "ProblemError",
    "Rank",
    "ReconnectPolicy",
    "Row",
    "Server",
    "Snapshot",
    "SnapshotList",
    "TimeBreakdown",
    "Trial",
    "find_server",
    "is_local",
    "is_settled",
    "local_server",
]
