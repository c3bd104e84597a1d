"""The home of this machine's server: who may read it, and whether what it says of a server is so."""

import os
import stat
from pathlib import Path

from rekindle.contract.files import read_json
from rekindle.contract.locks import lock_holder
from rekindle_service.cli.checks.finding import Finding, ok, problem, warning
from rekindle_service.cli.server_process import running_server
from rekindle_service.config.home import Home

_OTHERS = 0o077


def home_folder(home: Home) -> list[Finding]:
    if not home.root.exists():
        return [ok("home", f"{home.root} is not there yet: the first `rekindle serve` makes it")]
    there = {"home": home.root, "token": home.token, "server.json": home.server_json}
    return [*(private(name, path) for name, path in there.items() if path.exists()), server(home)]


def private(name: str, path: Path) -> Finding:
    """Whoever can read the token can run code as this user. Precondition: ``path`` exists."""
    status = path.stat()
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.getuid():
        return problem(name, f"{path} belongs to user {status.st_uid}", "Use a home of your own: set REKINDLE_HOME.")
    if mode & _OTHERS:
        advice = f"Shut it: chmod {mode & ~_OTHERS:o} {path}"
        return problem(name, f"other users may get at {path}: its mode is {mode:04o}", advice)
    return ok(name, f"{path} is yours alone ({mode:04o})")


def server(home: Home) -> Finding:
    """Whether the home's owner, by the lock, is the server that it announces, and answers."""
    owner, announced = lock_holder(home.server_lock), read_json(home.server_json)
    pid = announced.get("pid") if isinstance(announced, dict) else None
    if owner is None and announced is None:
        return ok("server", "none runs")
    if owner is None:
        detail = f"{home.server_json} is stale: no server owns the home, process {pid} was killed"
        return warning("server", detail, "Start one, it finds all jobs again: rekindle serve")
    if owner != pid:
        detail = f"process {owner} owns the home, but {home.server_json} names {pid}"
        return warning("server", detail, "It may be starting: look again. If this stays, restart it.")
    if running_server(home) is None:
        return problem("server", f"process {pid} owns the home but does not answer", f"End and restart it: kill {pid}")
    return ok("server", f"process {pid} answers")
