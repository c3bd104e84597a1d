"""Which names this server answers to.

A hostile page may point its own name at 127.0.0.1 (DNS rebinding) and would then be of the same origin as we are in
the browser's eyes; but the ``Host`` header still has its name.
"""

import ipaddress
import socket

from starlette.types import ASGIApp, Receive, Scope, Send

from rekindle_service.api.problems import problem_response

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_EVERYWHERE = frozenset({"0.0.0.0", "::"})  # noqa: S104 compared with, not bound to


class HostCheck:
    """Answers 400 to every request whose ``Host`` is not a name of this server, before anything else looks.

    Its names are those of loopback and ``host``, the address that it listens on. One that listens everywhere also
    answers to the machine's name and to bare addresses, which nobody can rebind. Any port will do: a tunnel has its
    own.
    """

    def __init__(self, app: ASGIApp, host: str) -> None:
        self._app = app
        self._everywhere = host in _EVERYWHERE
        own = socket.gethostname() if self._everywhere else f"[{host}]" if ":" in host else host
        self._names = _LOOPBACK | {own.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) == 1 and self._is_ours(host_name(hosts[0].decode("latin-1"))):
            await self._app(scope, receive, send)
            return
        detail = (
            "the Host header must name this server once: "
            f"{', '.join(sorted(self._names))}, with any port; other names are allowed by the setting host"
        )
        await problem_response(400, "wrong-host", detail)(scope, receive, send)

    def _is_ours(self, name: str) -> bool:
        return name in self._names or (self._everywhere and _is_address(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def host_name(header: str) -> str:
    """The name in a ``Host`` header, lower case, without port; of an IPv6 address with its brackets."""
    name, colon, port = header.rpartition(":")
    if colon and (port.isdecimal() or not port) and (":" not in name or name.endswith("]")):
        return name.lower()
    return header.lower()
