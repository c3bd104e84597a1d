"""Which names this server answers to.

A hostile page may point its own name at 127.0.0.1 (DNS rebinding) and would then be of the same origin as we are in
the browser's eyes; but the ``Host`` header still has its name.
"""

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from rekindle_service.api.problems import problem_response

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


class HostCheck:
    """Answers 400 to every request whose ``Host`` is not one of ``names`` (any port), before anything else looks."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) == 1 and host_name(hosts[0].decode("latin-1")) in self._names:
            await self._app(scope, receive, send)
            return
        detail = (
            "the Host header must name this server once: "
            f"{', '.join(sorted(self._names))}, with any port; other names are allowed by the setting host"
        )
        await problem_response(400, "wrong-host", detail)(scope, receive, send)


def host_name(header: str) -> str:
    """The name in a ``Host`` header, lower case, without port; of an IPv6 address with its brackets."""
    name, colon, port = header.rpartition(":")
    if colon and (port.isdecimal() or not port) and (":" not in name or name.endswith("]")):
        return name.lower()
    return header.lower()
