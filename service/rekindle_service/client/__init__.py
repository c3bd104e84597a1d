"""The REST API from Python: ``Client``, which the command line uses, and ``AsyncClient``.

Answers are the server's JSON, described by typed dictionaries: ``-o json`` prints it unchanged, and a field that a
newer server adds does no harm.
"""

from rekindle_service.client import answers
from rekindle_service.client.answers import *  # noqa: F403
from rekindle_service.client.calls import LogBytes
from rekindle_service.client.client_errors import (
    FieldProblem,
    NoServerError,
    OnConnectionChange,
    Problem,
    ProblemError,
    ReconnectPolicy,
)
from rekindle_service.client.clients import AsyncClient, Client
from rekindle_service.client.discovery import Server, find_server, is_local, local_server
from rekindle_service.client.log_follower import AttemptHeader, LogFilter, LogItem, LogLine, is_settled
from rekindle_service.client.transport import StreamEvent

__all__ = ["AsyncClient", "Client", "Server", "StreamEvent", "find_server", "is_local", "local_server"]
__all__ += ["FieldProblem", "NoServerError", "OnConnectionChange", "Problem", "ProblemError", "ReconnectPolicy"]
__all__ += ["AttemptHeader", "LogBytes", "LogFilter", "LogItem", "LogLine", "is_settled"]
__all__ += answers.__all__
