"""A server in the background, for whoever needs one now and has none."""

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.durable import read_json
from rekindle_service.client import Address, Client, NoServerError, server_in
from rekindle_service.home import Home

_PATIENCE = 60.0  # seconds for a cold start on a busy machine
_POLL = 0.1  # seconds
_TOLD_LINES = 15


@dataclass(frozen=True, slots=True)
class RunningServer:
    address: Address
    pid: int


def running_server(home: Home) -> RunningServer | None:
    """The server of this home, if one answers. ``REKINDLE_URL`` is not asked: this is about this machine."""
    try:
        address = server_in(home)
        with Client(lambda: address) as client:
            list(client.jobs(limit=1))
    except NoServerError:
        return None
    server = read_json(home.server_json)
    return RunningServer(address, int(server["pid"])) if isinstance(server, dict) else None


def start_server(home: Home, log: Path) -> RunningServer:
    """Start a server on a free port, in a session of its own so that it outlives this terminal.

    Raises NoServerError with the end of its log when it does not come up.
    """
    home.root.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "rekindle_service", "--home", str(home.root), "serve", "--port", "0"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    deadline = time.monotonic() + _PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        server = running_server(home)
        if server is not None and server.pid == process.pid:
            return server
        time.sleep(_POLL)
    process.kill()
    process.wait()
    told = "\n".join(log.read_text(errors="replace").splitlines()[-_TOLD_LINES:])
    raise NoServerError(f"The server did not come up. The end of {log}:\n{told}")
