"""``rekindle serve``: takes the home, makes the parts of the server and serves until it is stopped."""

import ipaddress
import os
import socket
import sys
import threading
from contextlib import ExitStack, suppress
from functools import partial

import structlog

from rekindle_service.api.app import create_app
from rekindle_service.api.pages import prepare_pages
from rekindle_service.composition import CannotServeError, ServerParts, make_isolation, own_home
from rekindle_service.config.home import Home, HomeInUseError
from rekindle_service.config.logging_config import configure_logging
from rekindle_service.config.settings import Settings
from rekindle_service.http_server import MAX_SOCKET_PATH, HttpServer, listen, listen_unix, raise_file_limit, url_of
from rekindle_service.store import CorruptDatabaseError

_log = structlog.get_logger(__name__)

_CANNOT_SERVE = 2
"""Exit code of a server that cannot start with its settings."""


def serve(settings: Settings) -> int:
    """Serve until SIGINT or SIGTERM; returns the exit code. Keepers and their jobs continue.

    The shutdown is the reverse of the startup: requests end, then the reconciler, then the database is closed and the
    home released.
    """
    configure_logging()
    try:
        with ExitStack() as stack:
            _compose(settings, stack).run_until_stopped()
    except (CannotServeError, HomeInUseError, CorruptDatabaseError) as error:
        _print(f"rekindle: {error}", error=True)
        return _CANNOT_SERVE
    return 0


def _compose(settings: Settings, stack: ExitStack) -> HttpServer:
    _require_loopback(settings)
    raise_file_limit()
    isolation = make_isolation(settings)
    token = own_home(settings.home_dir, stack)
    parts = ServerParts(settings, token, isolation, stack)
    listener = _listener(settings)
    stack.callback(listener.close)
    unix_listeners = _unix_listener(settings, stack)
    app = create_app(parts.state)
    parts.start()
    pages = threading.Thread(target=prepare_pages, args=(parts.state.stopping.is_set,), name="pages", daemon=True)
    pages.start()
    stack.callback(pages.join)
    stack.callback(settings.home_dir.remove_server_info)
    return HttpServer(
        app,
        listener,
        parts.state.stopping,
        on_ready=partial(_report_ready, settings.home_dir, url_of(listener), token, settings.host),
        unix_listeners=unix_listeners,
    )


def _require_loopback(settings: Settings) -> None:
    """An open port lets others run code here: never by a host that somebody has left in a file or an environment."""
    if not settings.allow_remote and not _is_loopback(settings.host):
        raise CannotServeError(
            f"host {settings.host} can be reached from other machines, and whoever has the token runs code here: "
            "listen on 127.0.0.1 and come through a tunnel (ssh -L), or pass --allow-remote"
        )


def _listener(settings: Settings) -> socket.socket:
    try:
        return listen(settings.host, settings.port)
    except OSError as error:
        raise CannotServeError(
            f"cannot listen on {settings.host} port {settings.port} ({error.strerror}): "
            "choose another with --port, or --port 0 for any free one, or an address of this machine with --host"
        ) from error


def _unix_listener(settings: Settings, stack: ExitStack) -> list[socket.socket]:
    """The UNIX socket, removed when the stack is unwound; none where its path is too long for one."""
    path, group = settings.socket_path, settings.socket_group
    if group is not None and path.is_relative_to(settings.home):
        raise CannotServeError(
            f"socket_group is {group}, but {path} is in the home, which only the user of the server can enter: "
            "set socket to a path in a directory that the group can enter, as in /run/rekindle/rekindle.sock"
        )
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        _log.warning("No UNIX socket: its path is too long; commands use the port and the token", path=str(path))
        return []
    try:
        listener = listen_unix(path, group)
    except OSError as error:
        raise CannotServeError(
            f"cannot listen on the UNIX socket {path} ({error.strerror}): choose another path with the setting socket"
        ) from error
    except LookupError as error:
        raise CannotServeError(f"there is no group {group}, which socket_group names") from error
    stack.callback(path.unlink, missing_ok=True)
    stack.callback(listener.close)
    return [listener]


def _report_ready(home: Home, url: str, token: str, host: str) -> None:
    home.write_server_info(url)
    _print(f"rekindle serves {home.root} at {url}")
    if sys.stdout.isatty():
        _print(f"Open {url}/login#token={token}")
    else:  # a file or the system's journal, which others may read
        _print(f"Open {url}/login and sign in with the token in {home.token}")
    _print("Ctrl-C stops the server; jobs keep running and the next server finds them.")
    if not _is_loopback(host):
        _print(
            f"Listening on {host}: whoever has the token can run code here, and without TLS the token can be read on "
            "the way. A tunnel (ssh -L) to 127.0.0.1 is safer.",
            error=True,
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _print(text: str, *, error: bool = False) -> None:
    """For people, at once: a pipe would otherwise hold it back until the end."""
    stream = sys.stderr if error else sys.stdout
    with suppress(OSError):  # of a full disk
        stream.write(text + "\n")
        stream.flush()
