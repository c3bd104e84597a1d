"""A server in the background, for whoever needs one now and has none."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from rekindle.contract.files import read_json
from rekindle.contract.locks import lock_holder
from rekindle.contract.processes import ProcessIdentity
from rekindle_service.client import Address, Client, NoServerError, server_in
from rekindle_service.config.home import Home

_PATIENCE = 60.0  # seconds for a cold start on a busy machine
_POLL = 0.1  # seconds
_TOLD_LINES = 15


@dataclass(frozen=True, slots=True)
class RunningServer:
    address: Address
    pid: int


@dataclass(frozen=True, slots=True)
class Invocation:
    """How a server was started, so that it can be started the same way again."""

    command: list[str]
    environment: dict[str, str]
    folder: Path


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
    command = [sys.executable, "-m", "rekindle_service", "--home", str(home.root), "serve", "--port", "0"]
    return _bring_up(home, Invocation(command, dict(os.environ), Path.cwd()), log)


def replace_server(home: Home, log: Path) -> RunningServer:
    """Kill -9 the server of this home and start it again as it was started, on the same port, in the background.

    Raises NoServerError when there is none, or none comes up again.
    """
    server = running_server(home)
    if server is None:
        raise NoServerError(f"No server is running in {home.root}.")
    invocation = _invocation(server.pid)
    _kill(home, server.pid)
    port = urlsplit(server.address.url).port
    invocation.command.extend(["--port", str(port)])  # the last one given counts
    return _bring_up(home, invocation, log)


def _invocation(pid: int) -> Invocation:
    process = Path("/proc", str(pid))
    command = process.joinpath("cmdline").read_bytes().rstrip(b"\0").split(b"\0")
    variables = process.joinpath("environ").read_bytes().rstrip(b"\0").split(b"\0")
    pairs = (os.fsdecode(variable).partition("=") for variable in variables)
    return Invocation(
        [os.fsdecode(word) for word in command],
        {name: value for name, _, value in pairs},
        process.joinpath("cwd").readlink(),
    )


def _kill(home: Home, pid: int) -> None:
    """SIGKILL the process that owns the home, and wait until it is gone.

    Its identity is taken first and the ownership checked afterwards, so that a process that reuses the pid is spared.
    """
    server = ProcessIdentity.of(pid)
    if server is not None and lock_holder(home.server_lock) != pid:
        raise NoServerError(f"Process {pid} is not the server of {home.root}: {home.server_json} is stale.")
    if server is None or not server.send_signal(signal.SIGKILL, wait=True):
        raise NoServerError(f"The server of {home.root} has just ended, or belongs to another user.")


def _bring_up(home: Home, invocation: Invocation, log: Path) -> RunningServer:
    """Start a server and wait until this home has one that answers: this one, or a supervisor's that was faster."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            invocation.command,
            cwd=invocation.folder,
            env=invocation.environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        ended = process.poll() is not None  # asked first: a server that lost the race leaves another behind
        server = running_server(home)
        if server is not None:
            return server
        if ended:
            break
        time.sleep(_POLL)
    process.kill()
    process.wait()
    told = "\n".join(log.read_text(errors="replace").splitlines()[-_TOLD_LINES:])
    raise NoServerError(f"The server did not come up. The end of {log}:\n{told}")
