"""The composition root of ``rekindle serve``: settings, home, lock, store, reconciler, application, HTTP server."""

import ipaddress
import os
import socket
import sys
import threading
import time
from contextlib import ExitStack
from functools import partial
from urllib.parse import urlsplit

import structlog

from rekindle.contract.cores import Affinity
from rekindle.contract.environment import clean_environment
from rekindle_service.access.control import AccessControl
from rekindle_service.access.permissions import Scope
from rekindle_service.api.app import create_app
from rekindle_service.api.dependencies import AppState
from rekindle_service.config.home import Home, HomeInUseError
from rekindle_service.config.logging_config import configure_logging
from rekindle_service.config.settings import Settings
from rekindle_service.http_server import HttpServer, listen, raise_file_limit, url_of
from rekindle_service.jobs.cluster_rules import ISOLATED, NO_SLURM
from rekindle_service.jobs.device_states import DeviceStates
from rekindle_service.jobs.packaging.git_checkout import check_out
from rekindle_service.jobs.quotas import Quotas
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.launchers.editable_installs import EditableModules
from rekindle_service.launchers.interpreter import InterpreterCheck
from rekindle_service.launchers.isolation.policy import Isolation, IsolationError, isolation_of
from rekindle_service.launchers.isolation.rights import SubmitRights
from rekindle_service.launchers.local import KeeperLauncher, default_keys, prepare_worker_path
from rekindle_service.launchers.slurm.batch_job import extra_error
from rekindle_service.launchers.slurm.composition import slurm_cluster, slurm_launcher
from rekindle_service.launchers.spare_keepers import SpareKeepers
from rekindle_service.machine.devices import Machine, find_machine
from rekindle_service.machine.gpu_probe_client import GpuProbe
from rekindle_service.machine.health import DeviceHealth
from rekindle_service.machine.monitor import MachineMonitor
from rekindle_service.notifications.dispatcher import start_dispatchers
from rekindle_service.retention.retention import Retention, rules_of
from rekindle_service.scheduler.device_watch import DeviceWatch
from rekindle_service.scheduler.displacer import DisplacementRules
from rekindle_service.scheduler.reconciler import Reconciler
from rekindle_service.store import CorruptDatabaseError, StorageError, Store
from rekindle_service.store.maintenance import Maintenance
from rekindle_service.store.transfer import move_rows
from rekindle_service.unix_socket import MAX_SOCKET_PATH, listen_unix

_log = structlog.get_logger(__name__)

_CANNOT_SERVE = 2
"""Exit code of a server that cannot start with its settings."""


class CannotServeError(Exception):
    """The server cannot start; the message says what to change."""


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
    home = settings.home_dir
    isolation = _isolation(settings, home)
    token = _own(home, stack)
    store = _open_store(home, settings, stack)
    backup_hours = settings.backup_hours if settings.database is None else 0
    maintenance = Maintenance(store, backup_hours, settings.backups_kept)
    stack.callback(maintenance.close)
    if isolation.users:
        home.close_files()
    listener = _listener(settings)
    stack.callback(listener.close)
    unix_listener = _unix_listener(settings, stack)
    machine = find_machine(settings.cpu_slots, exclude=settings.excluded_devices)
    probe = GpuProbe([slot.uuid for slot in machine.slots if slot.uuid])
    monitor = MachineMonitor(machine, home.root, probe.readings)
    stack.callback(monitor.close)
    health = DeviceHealth()
    devices = DeviceStates(store, machine, health)
    spares = _spare_keepers(settings, isolation)
    if spares is not None:
        stack.callback(spares.close)
    launcher = KeeperLauncher(home, machine, prepare_worker_path(home), isolation, Affinity(settings.affinity), spares)
    reconciler = _reconciler(settings, home, store, machine, launcher, health)
    health.on_change = reconciler.wake
    watch = DeviceWatch(store, home, devices, probe)
    stack.callback(watch.close)
    stack.callback(reconciler.close)
    retention = Retention.of(home, store, reconciler.deletions, rules_of(settings))
    stack.callback(retention.close)
    stopping = threading.Event()
    access = _access_control(store, token, settings)
    access.start()
    stack.callback(access.close)
    state = AppState(
        home=home,
        store=store,
        machine=machine,
        devices=devices,
        monitor=monitor,
        retention=retention,
        submitter=_submitter(settings, home, store, machine, isolation),
        access=access,
        host=settings.host,
        public_host=urlsplit(settings.public_url).hostname if settings.public_url else None,
        max_bundle_bytes=settings.bundle_bytes,
        started_at=time.time(),
        stopping=stopping,
        wake=reconciler.wake,
        scheduler_health=reconciler.health,
        isolation=isolation.describe(),
        quotas=_quotas(settings),
        fair_share_days=settings.fair_share_days,
    )
    app = create_app(state)
    _start_scheduler(reconciler, devices, watch)
    if spares is not None:
        spares.start(*default_keys(home.worker_path, machine, isolation))
    maintenance.start()
    monitor.start()
    retention.start()
    stack.callback(start_dispatchers(store, settings.notify))
    stack.callback(home.remove_server_info)
    return HttpServer(
        app,
        listener,
        stopping,
        on_ready=partial(_report_ready, home, url_of(listener), token, settings.host),
        unix_listeners=unix_listener,
    )


def _spare_keepers(settings: Settings, isolation: Isolation) -> SpareKeepers | None:
    """None where jobs have other rights than this server, or fewer: its processes have its own."""
    if settings.spare_keepers == 0 or not isolation.is_empty:
        return None
    return SpareKeepers(settings.spare_keepers, settings.spare_memory, clean_environment(os.environ))


def _reconciler(
    settings: Settings, home: Home, store: Store, machine: Machine, launcher: KeeperLauncher, health: DeviceHealth
) -> Reconciler:
    return Reconciler(
        store,
        home,
        machine,
        launcher,
        healthy_seconds=settings.healthy_seconds,
        log_bytes=settings.log_bytes,
        host_timeout=settings.host_timeout,
        cluster=slurm_launcher(home, settings),
        device_health=health,
        displacement=DisplacementRules(settings.preemption, settings.min_run_seconds, _quotas(settings)),
        quotas=_quotas(settings),
        fair_share_days=settings.fair_share_days,
    )


def _quotas(settings: Settings) -> Quotas:
    return Quotas(settings.quotas, settings.max_queued)


def _submitter(settings: Settings, home: Home, store: Store, machine: Machine, isolation: Isolation) -> Submitter:
    return Submitter(
        store,
        home,
        machine,
        InterpreterCheck(isolated=isolation.hides_the_server),
        check_out,
        EditableModules(isolated=isolation.hides_the_server),
        rights=SubmitRights(isolation, home),
        cluster=ISOLATED if isolation.hides_the_server else slurm_cluster() or NO_SLURM,
        sbatch_rule=extra_error,
        quotas=_quotas(settings),
    )


def _isolation(settings: Settings, home: Home) -> Isolation:
    """What jobs may touch."""
    try:
        home.create(traversable=bool(settings.job_users))
        return isolation_of(settings, home)
    except IsolationError as error:
        raise CannotServeError(str(error)) from error
    except OSError as error:
        raise _unusable(home, error) from error


def _unusable(home: Home, error: OSError) -> CannotServeError:
    return CannotServeError(
        f"cannot use {home.root} as home ({error.strerror}): choose another directory with --home or REKINDLE_HOME"
    )


def _own(home: Home, stack: ExitStack) -> str:
    """Take the home until the stack is unwound; returns its token."""
    try:
        stack.callback(home.lock().release)
        return home.ensure_token()
    except OSError as error:
        raise _unusable(home, error) from error


def _open_store(home: Home, settings: Settings, stack: ExitStack) -> Store:
    url = settings.database
    try:
        store = Store(home.database, None if url is None else url.get_secret_value())
        stack.callback(store.close)
        store.hold()
        store.migrate()
        if url is not None:
            store.claim(home.ensure_id())
            move_rows(home.database, store)
    except (StorageError, ValueError) as error:
        raise CannotServeError(str(error)) from error
    return store


def _start_scheduler(reconciler: Reconciler, devices: DeviceStates, watch: DeviceWatch) -> None:
    """What is known of the devices first: it decides which of them the jobs get."""
    try:
        devices.refresh()
        watch.start()
        reconciler.start()
    except StorageError as error:
        raise CannotServeError(str(error)) from error


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


def _access_control(store: Store, token: str, settings: Settings) -> AccessControl:
    return AccessControl(
        store,
        token,
        private_jobs=settings.private_jobs,
        request_rate=settings.request_rate,
        socket_scope=Scope(settings.socket_scope) if settings.socket_group else None,
    )


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
    stream.write(text + "\n")
    stream.flush()
