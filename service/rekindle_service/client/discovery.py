"""Finding the server: its URL and token from settings, or from the home of this machine."""

from dataclasses import dataclass
from typing import Any

import httpx2

from rekindle.contract.files import read_json
from rekindle.contract.locks import lock_holder
from rekindle_service.client.errors import NoServerError
from rekindle_service.config.home import Home
from rekindle_service.config.settings import Settings


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    token: str

    def http_options(self, timeout: float) -> dict[str, Any]:
        """Options of an HTTP client that waits at most ``timeout`` seconds for the next byte.

        Loading the system's certificates takes longer than a whole request, so only TLS does it. The environment's
        proxies are ignored, since none can reach this machine's loopback interface.
        """
        return {
            "base_url": self.url,
            "headers": {"Authorization": f"Bearer {self.token}"},
            "timeout": httpx2.Timeout(timeout, connect=min(5, timeout)),
            "trust_env": False,
            "verify": self.url.startswith("https:"),
        }


@dataclass(frozen=True, slots=True)
class LocalServer(Server):
    """A server on this machine."""

    pid: int


def find_server(settings: Settings) -> Server:
    """The server of ``REKINDLE_URL`` and ``REKINDLE_TOKEN``, else the one that runs in the home of this machine.

    Raises NoServerError when there is neither.
    """
    if settings.url is not None:
        if settings.token is None:  # the token of this machine's home is another server's secret
            raise NoServerError(f"REKINDLE_URL is {settings.url}, but there is no token: set REKINDLE_TOKEN as well.")
        return Server(settings.url, settings.token)
    return local_server(settings.home_dir)


def is_local(settings: Settings) -> bool:
    """Whether the server runs in this machine's home and so can read its files; otherwise code must be uploaded."""
    if settings.url is None:
        return True
    own = read_json(settings.home_dir.server_json)
    return isinstance(own, dict) and str(own.get("url")).rstrip("/") == settings.url.rstrip("/")


def local_server(home: Home) -> LocalServer:
    """The server that owns ``home``. Raises NoServerError when there is none.

    Any process may listen on the port of a server that was killed, and would receive the token: only the owner of the
    lock counts. Must not be called in the server's own process (see ``lock_holder``).
    """
    try:
        server, owner = read_json(home.server_json), lock_holder(home.server_lock)
        if owner is not None and isinstance(server, dict) and server.get("pid") == owner and home.token.exists():
            return LocalServer(str(server["url"]), home.token.read_text().strip(), owner)
    except OSError as error:
        detail = f"{home.root} is not a readable home ({error.strerror}): check REKINDLE_HOME and --home."
        raise NoServerError(detail) from error
    raise NoServerError(f"No server is running in {home.root}.")
