"""What the application may do with the connection of a request."""

from typing import Protocol

from starlette.types import Scope

_SCOPE_KEY = "rekindle.connection"  # as in ``http_server``


class Connection(Protocol):
    def authenticated(self) -> None:
        """A request has shown a valid token: the connection is no longer closed in favour of new ones."""

    def abort(self) -> None:
        """Close it at once, so that the client sees that its response is incomplete."""


def connection_of(scope: Scope) -> Connection | None:
    """None where another server than ours runs the application, as in tests."""
    connection: Connection | None = scope.get("state", {}).get(_SCOPE_KEY)
    return connection
