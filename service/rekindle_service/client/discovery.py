"""Finding the server: its URL and token from settings, or from the home of this machine."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from rekindle.contract.files import read_json
from rekindle.contract.locks import lock_holder
from rekindle_service.client.client_errors import NoServerError
from rekindle_service.config.client_settings import ClientSettings
from rekindle_service.config.home import Home

UNIX_SCHEME = "unix:"


@dataclass(frozen=True, slots=True)
class Server:
    """Where a server listens. On its ``socket`` it learns from the kernel who connects, and the token is not sent.

    ``pid`` is known of the server of this machine's home alone.
    """

    url: str
    token: str | None
    socket: Path | None = None
    pid: int = 0

    def http_options(self, timeout: float) -> dict[str, Any]:
        """Options of an HTTP client that waits at most ``timeout`` seconds for the next byte.

        Loading the system's certificates takes longer than a whole request, so only TLS does it. The environment's
        proxies are ignored, since none can reach this machine's loopback interface.
        """
        needs_token = self.socket is None and self.token is not None
        return {
            "base_url": self.url if self.socket is None else "http://localhost",
            "headers": {"Authorization": f"Bearer {self.token}"} if needs_token else {},
            "timeout": httpx2.Timeout(timeout, connect=min(5, timeout)),
            "trust_env": False,
            "verify": self.url.startswith("https:"),
        }


def find_server(settings: ClientSettings) -> Server:
    """The server of ``REKINDLE_URL`` and its token, else the one that runs in the home of this machine.

    Raises NoServerError when there is neither.
    """
    url = settings.url
    if url is None:
        return local_server(settings.home_dir, settings.socket_path)
    if url.startswith(UNIX_SCHEME):
        return Server(url, None, Path(url.removeprefix(UNIX_SCHEME).removeprefix("//")))
    token = _token(settings)
    if token is None:  # the token of this machine's home is another server's secret
        raise NoServerError(
            f"REKINDLE_URL is {url}, but there is no token: set REKINDLE_TOKEN_FILE to a file that has it, "
            "or REKINDLE_TOKEN."
        )
    return Server(url, token)


def _token(settings: ClientSettings) -> str | None:
    if settings.token is not None or settings.token_file is None:
        return settings.token
    try:
        return settings.token_file.expanduser().read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NoServerError(f"The token file {settings.token_file} cannot be read: {error}.") from error


def is_local(settings: ClientSettings) -> bool:
    """Whether the server runs in this machine's home and so can read its files; otherwise code must be uploaded."""
    if settings.url is None:
        return True
    own = read_json(settings.home_dir.server_json)
    return isinstance(own, dict) and str(own.get("url")).rstrip("/") == settings.url.rstrip("/")


def local_server(home: Home, socket: Path | None = None) -> Server:
    """The server that owns ``home``, reached by its UNIX socket where it has one. Raises NoServerError if none runs.

    Any process may listen on the port of a server that was killed, and would receive the token: only the owner of the
    lock counts. Must not be called in the server's own process (see ``lock_holder``).
    """
    try:
        server, owner = read_json(home.server_json), lock_holder(home.server_lock)
        if owner is not None and isinstance(server, dict) and server.get("pid") == owner and home.token.exists():
            path = home.socket if socket is None else socket
            return Server(str(server["url"]), home.token.read_text().strip(), path if path.is_socket() else None, owner)
    except OSError as error:
        detail = f"{home.root} is not a readable home ({error.strerror}): check REKINDLE_HOME and --home."
        raise NoServerError(detail) from error
    raise NoServerError(f"No server is running in {home.root}.")
