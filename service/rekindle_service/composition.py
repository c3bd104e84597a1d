"""The parts of the server, made of its settings and closed when the stack is unwound."""

import os
import sys
import threading
import time
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import structlog

from rekindle.contract.cores import Affinity
from rekindle.contract.environment import clean_environment
from rekindle_service.access.access_control import AccessControl
from rekindle_service.access.permissions import Scope
from rekindle_service.api.dependencies import AppState
from rekindle_service.config.home import Home
from rekindle_service.config.settings import Settings
from rekindle_service.experiments.halving import PRUNE_INTERVAL, SweepPruner
from rekindle_service.jobs.device_check import CHECK_INTERVAL, DeviceChecker
from rekindle_service.jobs.device_states import DeviceStates
from rekindle_service.jobs.quotas import Quotas
from rekindle_service.jobs.submitter import Submitter
from rekindle_service.launch.isolation.job_isolation import Isolation, IsolationError, isolation_of
from rekindle_service.launch.launcher import LauncherParts
from rekindle_service.launch.local.interpreter import (
    UNREACHABLE_ADVICE,
    EditableModules,
    InterpreterCheck,
    unreachable_interpreter,
)
from rekindle_service.launch.local.local_launcher import (
    KeeperLauncher,
    default_keys,
    prepare_worker_copy,
    remove_worker_copies,
)
from rekindle_service.launch.local.spare_keepers import SpareKeepers
from rekindle_service.launch.registry import Launchers
from rekindle_service.machine.gpu_report import GpuProbe
from rekindle_service.machine.health import DeviceHealth
from rekindle_service.machine.monitor import MachineMonitor
from rekindle_service.machine.slots import find_machine
from rekindle_service.mirror.mirrors import Mirrors
from rekindle_service.notifications.dispatcher import start_dispatchers
from rekindle_service.periodic_thread import PeriodicThread
from rekindle_service.retention.pruner import Pruner
from rekindle_service.scheduler.device_watch import DeviceWatch
from rekindle_service.scheduler.displacer import DisplacementRules
from rekindle_service.scheduler.reconciler import Reconciler
from rekindle_service.store import StorageError, Store
from rekindle_service.store.backups import Maintenance

_log = structlog.get_logger(__name__)

_LOCK_INTERVAL = 5.0  # seconds; for as long, commands cannot find a server whose lock was removed


class CannotServeError(Exception):
    """The server cannot start; the message says what to change."""


class ServerParts:
    """The parts of a server that has its home. Nothing runs before ``start``; the stack closes them, the last first."""

    def __init__(self, settings: Settings, token: str, isolation: Isolation, stack: ExitStack) -> None:
        """``token`` is the administrator's. Raises CannotServeError."""
        self._settings, self._isolation, self._stack = settings, isolation, stack
        self._home = home = settings.home_dir
        self._quotas = Quotas(settings.quotas, settings.max_queued)
        self._store = store = _open_store(home, stack)
        backups = Maintenance(store.check, store.verify, store.backups, settings.backup_hours, settings.backups_kept)
        self._maintenance = stack.enter_context(closing(backups))
        if isolation.users:
            home.close_files()
        self._machine = find_machine(settings.cpu_slots, exclude=settings.excluded_devices)
        self._devices = DeviceStates(store, self._machine, DeviceHealth())
        self._watch_devices()
        self._spares = self._spare_keepers()
        affinity, worker_path = Affinity(settings.affinity), prepare_worker_copy(home)
        if not store.holding():
            remove_worker_copies(worker_path)
        self._keepers = KeeperLauncher(home, self._machine, worker_path, isolation, affinity, self._spares)
        self._python = _interpreter_check(isolation, home, worker_path, settings.python)
        parts = LauncherParts(store, home, settings, self._machine, isolation, worker_path, self._keepers, self._python)
        self._launchers = Launchers.create(parts)
        self._reconciler = stack.enter_context(closing(self._make_reconciler()))
        prune = SweepPruner(store, home).prune
        self._sweeps = stack.enter_context(closing(PeriodicThread("sweeps", prune, PRUNE_INTERVAL, "Pruning failed")))
        self.state = self._app_state(token)
        check = DeviceChecker(store, home, self._devices, self.state.submitter).check
        checks = PeriodicThread("device checks", check, CHECK_INTERVAL, "Device checks failed")
        self._checks = stack.enter_context(closing(checks))
        self._mirrors = stack.enter_context(closing(Mirrors(store, home)))
        stack.callback(start_dispatchers(store, settings.notify))

    def start(self) -> None:
        """Start with what is known of the devices: it decides which of them the jobs get. Raises CannotServeError."""
        try:
            self._devices.refresh()
            self._watch.start()
            self._reconciler.start()
        except StorageError as error:
            raise CannotServeError(str(error)) from error
        if self._spares is not None:
            python, path = self._python.default(), self._keepers.worker_path
            usable = self._python(python) is None
            self._spares.start(*(default_keys(python, path, self._machine, self._isolation) if usable else ()))
        self._maintenance.start()
        self._monitor.start()
        self._sweeps.start()
        self._checks.start()
        self._mirrors.start()
        self.state.retention.start()

    def _watch_devices(self) -> None:
        probe = GpuProbe([slot.uuid for slot in self._machine.slots if slot.uuid])
        monitor = MachineMonitor(self._machine, self._home.root, probe.readings)
        self._monitor = self._stack.enter_context(closing(monitor))
        find_again = partial(find_machine, 0, exclude=self._settings.excluded_devices)
        watch = DeviceWatch(self._store, self._home, self._devices, probe, find_again)
        self._watch = self._stack.enter_context(closing(watch))

    def _spare_keepers(self) -> SpareKeepers | None:
        """None where jobs have other rights than this server, or fewer: its processes have its own."""
        if self._settings.spare_keepers == 0 or not self._isolation.is_empty:
            return None
        environment = clean_environment(os.environ)
        spares = SpareKeepers(self._settings.spare_keepers, self._settings.spare_memory, environment)
        return self._stack.enter_context(closing(spares))

    def _make_reconciler(self) -> Reconciler:
        settings = self._settings
        reconciler = Reconciler(
            self._store,
            self._home,
            self._machine,
            self._launchers,
            healthy_seconds=settings.healthy_seconds,
            log_bytes=settings.log_bytes,
            host_timeout=settings.host_timeout,
            device_health=self._devices.health,
            displacement=DisplacementRules(settings.preemption, settings.min_run_seconds, self._quotas),
            fair_share_days=settings.fair_share_days,
        )
        self._devices.health.on_change = reconciler.wake
        return reconciler

    def _app_state(self, token: str) -> AppState:
        settings, reconciler = self._settings, self._reconciler
        retention = Pruner(self._home, self._store, reconciler.deletions, settings)
        return AppState(
            home=self._home,
            store=self._store,
            machine=self._machine,
            devices=self._devices,
            monitor=self._monitor,
            retention=self._stack.enter_context(closing(retention)),
            submitter=self._submitter(),
            access=self._access_control(token),
            host=settings.host,
            public_host=urlsplit(settings.public_url).hostname if settings.public_url else None,
            max_bundle_bytes=settings.bundle_bytes,
            started_at=time.time(),
            stopping=threading.Event(),
            wake=reconciler.wake,
            scheduler_health=reconciler.health,
            prospect=reconciler.prospect,
            outlook=reconciler.outlook,
            isolation=self._isolation.describe(),
            quotas=self._quotas,
            fair_share_days=settings.fair_share_days,
        )

    def _submitter(self) -> Submitter:
        return Submitter(
            self._store,
            self._home,
            self._launchers,
            EditableModules(isolated=self._isolation.hides_the_server),
            quotas=self._quotas,
            mirror=self._settings.mirror,
            scheduler_problem=lambda: self._reconciler.health().problem(),
        )

    def _access_control(self, token: str) -> AccessControl:
        settings = self._settings
        access = AccessControl(
            self._store,
            token,
            private_jobs=settings.private_jobs,
            max_priority=settings.max_priority,
            request_rate=settings.request_rate,
            socket_scope=Scope(settings.socket_scope) if settings.socket_group else None,
        )
        access.start()
        return self._stack.enter_context(closing(access))


def make_isolation(settings: Settings) -> Isolation:
    """What jobs may touch. Raises CannotServeError."""
    home = settings.home_dir
    try:
        home.create(traversable=bool(settings.job_users))
        return isolation_of(settings, home)
    except IsolationError as error:
        raise CannotServeError(str(error)) from error
    except OSError as error:
        raise _unusable(home, error) from error


def own_home(home: Home, stack: ExitStack) -> str:
    """Take the home until the stack is unwound; returns its token. Raises CannotServeError, HomeInUseError."""
    try:
        lock = home.lock()
        stack.callback(lock.release)
        token = home.ensure_token()
    except OSError as error:
        raise _unusable(home, error) from error
    watch = PeriodicThread("lock", lock.restore, _LOCK_INTERVAL, f"{home.server_lock} cannot be locked again")
    stack.enter_context(closing(watch)).start()
    return token


def _interpreter_check(isolation: Isolation, home: Home, worker_path: Path, configured: str | None) -> InterpreterCheck:
    """A server whose own interpreter is hidden from jobs starts: a job may name another one."""
    try:
        unreachable = unreachable_interpreter(isolation, home, worker_path)
    except OSError as error:
        raise _unusable(home, error) from error
    if unreachable is not None:
        problem = f"{sys.executable}, the interpreter of jobs that name none, {unreachable}"
        _log.warning("Jobs cannot use the interpreter of this server", problem=problem, hint=UNREACHABLE_ADVICE)
    check = InterpreterCheck(
        isolated=isolation.hides_the_server,
        unreachable=unreachable,
        hidden=isolation.sandbox.hides if isolation.sandbox is not None else lambda _: False,
        configured=configured,
    )
    if configured is not None and (lack := check(configured)) is not None:
        _log.warning("The interpreter of the setting python cannot run jobs", python=configured, problem=lack.rule)
    return check


def _unusable(home: Home, error: OSError) -> CannotServeError:
    return CannotServeError(
        f"cannot use {home.root} as home ({error.strerror}): choose another directory with --home or REKINDLE_HOME"
    )


def _open_store(home: Home, stack: ExitStack) -> Store:
    store = Store(home.database)
    stack.callback(store.close)
    try:
        store.migrate()
    except StorageError as error:
        raise CannotServeError(str(error)) from error
    return store
