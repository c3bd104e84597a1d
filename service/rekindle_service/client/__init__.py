"""The REST API from Python: ``Client``, which the command line uses, and ``AsyncClient``.

Answers are the server's JSON, described by typed dictionaries: ``-o json`` prints it unchanged, and a field that a
newer server adds does no harm.
"""

from rekindle_service.client import models
from rekindle_service.client.async_client import AsyncClient
from rekindle_service.client.blocking_client import Client
from rekindle_service.client.calls import LogChunk
from rekindle_service.client.discovery import LocalServer, Server, find_server, is_local, local_server
from rekindle_service.client.errors import FieldProblem, NoServerError, Problem, ProblemError
from rekindle_service.client.log_follower import AttemptHeader, LogFilter, LogItem, LogLine
from rekindle_service.client.models import *  # noqa: F403
from rekindle_service.client.reconnect import OnConnectionChange, ReconnectPolicy, is_settled
from rekindle_service.client.transport import Event

__all__ = ["AsyncClient", "Client", "Event", "LocalServer", "Server", "find_server", "is_local", "local_server"]
__all__ += ["FieldProblem", "NoServerError", "OnConnectionChange", "Problem", "ProblemError", "ReconnectPolicy"]
__all__ += ["AttemptHeader", "LogChunk", "LogFilter", "LogItem", "LogLine", "is_settled"]
__all__ += models.__all__
