"""The service behind the tools: a client for each call, the caller's scope, and errors that an agent can act on."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mcp.server.mcpserver.exceptions import ToolError

from rekindle.contract import __version__
from rekindle_service.client import AsyncClient, Me, NoServerError, ProblemError
from rekindle_service.sanitize import sanitize_line

_MAX_ERROR = 1500  # characters


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """``connect`` makes a client with the caller's own token; the service decides what it may do."""

    connect: Callable[[], AsyncClient]

    @asynccontextmanager
    async def client(self, *, changes: bool = False) -> AsyncIterator[tuple[AsyncClient, Me]]:
        """A client, and who calls. ``changes``: not for a token that may only read. Raises ToolError."""
        try:
            async with self.connect() as client:
                me = await client.me()
                server = str(me.get("version", "of an earlier version"))
                if server.split(".")[:2] != __version__.split(".")[:2]:
                    raise ToolError(f"The server is rekindle {server}, this is {__version__}: install the same here.")
                if changes and me["scope"] == "read":
                    raise ToolError("This token has the scope read; a change requires the scope submit.")
                yield client, me
        except ProblemError as error:
            errors = error.problem.get("errors", [])
            fields = [f"{each.get('field')}: {each.get('rule')}. {each.get('hint') or ''}" for each in errors]
            raise ToolError(sanitize_line("; ".join([str(error), *fields]))[:_MAX_ERROR]) from error
        except NoServerError as error:
            raise ToolError(f"{error} `rekindle serve` starts one.") from error

    async def may_change(self) -> bool:
        """False also where the service does not answer."""
        try:
            async with self.client(changes=True):
                return True
        except ToolError:
            return False
