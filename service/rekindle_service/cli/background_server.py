"""A server in the background, for commands that need one: `rekindle demo`, and `rekindle chaos --fault server`."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from rekindle.contract.locks import lock_holder
from rekindle.contract.processes import ProcessIdentity
from rekindle_service.client import Client, NoServerError, ProblemError, Server, local_server
from rekindle_service.config.home import Home

_START_TIMEOUT = 60.0  # seconds, for a cold start on a busy machine
_POLL_INTERVAL = 0.1  # seconds
_LOG_LINES = 15  # of the log in an error


def running_server(home: Home) -> Server | None:
    """The server of this home, if one answers, be it with an error.

    ``REKINDLE_URL`` is ignored, since only this machine counts.
    """
    try:
        server = local_server(home)
        ask(server)
    except NoServerError:
        return None
    except ProblemError:
        pass
    return server


def ask(server: Server) -> None:
    """Ask for something that needs its database. Raises NoServerError and ProblemError."""
    with Client(lambda: server) as client:
        list(client.jobs(limit=1))


def start_server(home: Home, log: Path) -> Server:
    """Start a server on a free port, in its own session so that it outlives this terminal.

    Raises NoServerError with the last lines of its log when it does not start.
    """
    home.root.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "rekindle_service", "--home", str(home.root), "serve", "--port", "0"]
    return _start(home, command, log)


def replace_server(home: Home, log: Path) -> Server:
    """Kill -9 the server of this home and start it again in the same way, on the same port, in the background.

    Raises NoServerError when there is none, or it does not start again.
    """
    server = running_server(home)
    if server is None:
        raise NoServerError(f"No server is running in {home.root}.")
    process = Path("/proc", str(server.pid))
    command, variables = (
        [os.fsdecode(word) for word in (process / name).read_bytes().rstrip(b"\0").split(b"\0")]
        for name in ("cmdline", "environ")
    )
    options = {
        "env": dict(each.split("=", 1) for each in variables if "=" in each),
        "cwd": (process / "cwd").readlink(),
    }
    _kill(home, server.pid)
    command += ["--port", str(urlsplit(server.url).port)]  # the last --port counts
    return _start(home, command, log, **options)


def _kill(home: Home, pid: int) -> None:
    """SIGKILL the process that owns the home, and wait until it has ended.

    Its identity is taken first and the ownership checked afterwards, so that a process that reuses the pid is spared.
    """
    server = ProcessIdentity.of(pid)
    if server is not None and lock_holder(home.server_lock) != pid:
        raise NoServerError(f"Process {pid} is not the server of {home.root}: {home.server_json} is stale.")
    if server is None or not server.send_signal(signal.SIGKILL, wait=True):
        raise NoServerError(f"The server of {home.root} has just ended, or belongs to another user.")


def _start(home: Home, command: list[str], log: Path, **options: Any) -> Server:
    """Start a server and wait until one of this home answers: this one, or one that a supervisor started faster."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, **options
        )
    deadline = time.monotonic() + _START_TIMEOUT
    while time.monotonic() < deadline:
        ended = process.poll() is not None  # polled first: a server that lost the race leaves another one running
        running = running_server(home)
        if running is not None:
            return running
        if ended:
            break
        time.sleep(_POLL_INTERVAL)
    process.kill()
    process.wait()
    lines = "\n".join(log.read_text(errors="replace").splitlines()[-_LOG_LINES:])
    raise NoServerError(f"The server did not start. The last lines of {log}:\n{lines}")
