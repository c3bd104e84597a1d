"""Where the server is, and how it is talked to."""

from dataclasses import dataclass
from typing import Any

import httpx2

from rekindle.contract.files import read_json
from rekindle.contract.locks import lock_holder
from rekindle_service.client.problems import NoServerError
from rekindle_service.config.home import Home
from rekindle_service.config.settings import Settings


@dataclass(frozen=True, slots=True)
class Address:
    url: str
    token: str

    def http_options(self, timeout: float) -> dict[str, Any]:
        """For an HTTP client that waits at most so many seconds for the next byte.

        Reading the system's certificates takes longer than the whole request: only where TLS is spoken. The proxies
        of the environment are not used, since none can reach this machine's loopback.
        """
        return {
            "base_url": self.url,
            "headers": {"Authorization": f"Bearer {self.token}"},
            "timeout": httpx2.Timeout(timeout, connect=min(5, timeout)),
            "trust_env": False,
            "verify": self.url.startswith("https:"),
        }


def find_server(settings: Settings) -> Address:
    """Where the server is: ``REKINDLE_URL`` with ``REKINDLE_TOKEN``, else what the home of this machine says.

    Raises NoServerError when neither names one.
    """
    if settings.url is not None:
        if settings.token is None:  # the token of this machine's home is another server's secret
            raise NoServerError(f"REKINDLE_URL is {settings.url}, but there is no token: set REKINDLE_TOKEN as well.")
        return Address(settings.url, settings.token)
    return server_in(settings.home_dir)


def shares_disk(settings: Settings) -> bool:
    """Whether the server lies on this machine, as far as this machine's home tells: else code has to be uploaded."""
    if settings.url is None:
        return True
    own = read_json(settings.home_dir.server_json)
    return isinstance(own, dict) and str(own.get("url")).rstrip("/") == settings.url.rstrip("/")


def server_in(home: Home) -> Address:
    """The server that owns ``home``. Raises NoServerError when there is none.

    What a killed server has announced names a port that anybody may listen on by now, and whoever does would be sent
    the token: only the owner of the lock counts. Must not be called in the server's own process (see ``lock_holder``).
    """
    try:
        server, owner = read_json(home.server_json), lock_holder(home.server_lock)
        if owner is not None and isinstance(server, dict) and server.get("pid") == owner and home.token.exists():
            return Address(str(server["url"]), home.token.read_text().strip())
    except OSError as error:
        told = f"{home.root} is no home that can be read ({error.strerror}): check REKINDLE_HOME and --home."
        raise NoServerError(told) from error
    raise NoServerError(f"No server is running in {home.root}.")
