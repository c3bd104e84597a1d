"""The REST interface from Python: ``Client``, which the command line uses, and ``AsyncClient``.

Answers are the server's JSON as it is, described as typed dictionaries: nothing is lost between the server and
``-o json``, and a field that a newer server adds does no harm.
"""

from rekindle_service.client.absence import Absence, Tell
from rekindle_service.client.address import Address, find_server, server_in, shares_disk
from rekindle_service.client.asynchronous import AsyncClient
from rekindle_service.client.blocking import Client
from rekindle_service.client.event import Event
from rekindle_service.client.experiment_answers import BuiltIn, Experiment, ExperimentSummary, Row, Trial
from rekindle_service.client.job_answers import (
    Attempt,
    Configuration,
    Device,
    Devices,
    Fault,
    Injection,
    Job,
    JobTime,
    LogPart,
    MetricSeries,
    Outcome,
    Rank,
    Snapshot,
    SnapshotList,
    StoryEvent,
    rests,
)
from rekindle_service.client.log_follower import Headline, LogChoice, LogLine
from rekindle_service.client.problems import FieldProblem, NoServerError, Problem, ProblemError

__all__ = [
    "Absence",
    "Address",
    "AsyncClient",
    "Attempt",
    "BuiltIn",
    "Client",
    "Configuration",
    "Device",
    "Devices",
    "Event",
    "Experiment",
    "ExperimentSummary",
    "Fault",
    "FieldProblem",
    "Headline",
    "Injection",
    "Job",
    "JobTime",
    "LogChoice",
    "LogLine",
    "LogPart",
    "MetricSeries",
    "NoServerError",
    "Outcome",
    "Problem",
    "ProblemError",
    "Rank",
    "Row",
    "Snapshot",
    "SnapshotList",
    "StoryEvent",
    "Tell",
    "Trial",
    "find_server",
    "rests",
    "server_in",
    "shares_disk",
]
