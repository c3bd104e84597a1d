"""The parts of the server, made of its settings and closed when the stack is unwound."""

import os
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

import structlog

from rekindle.contract.cores import Affinity
from rekindle.contract.environment import clean_environment
from rekindle_service.access.access_control import AccessControl
from rekindle_service.access.permissions import Scope
from rekindle_service.api.dependencies import AppState
from rekindle_service.config.home import Home
from rekindle_service.config.settings import Settings
from rekindle_service.jobs.device_states import DeviceStates
from rekindle_service.jobs.packaging.git_checkout import check_out
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
from rekindle_service.launch.local.keeper_start import KeeperLauncher, default_keys, prepare_worker_path
from rekindle_service.launch.local.spare_keepers import SpareKeepers
from rekindle_service.launch.registry import Launchers
from rekindle_service.machine.gpu_report import GpuProbe
from rekindle_service.machine.health import DeviceHealth
from rekindle_service.machine.monitor import MachineMonitor
from rekindle_service.machine.slots import Machine, find_machine
from rekindle_service.notifications.dispatcher import start_dispatchers
from rekindle_service.periodic_thread import PeriodicThread
from rekindle_service.retention.pruner import Pruner
from rekindle_service.retention.rules import Rules
from rekindle_service.scheduler.device_watch import DeviceWatch
from rekindle_service.scheduler.displacer import DisplacementRules
from rekindle_service.scheduler.reconciler import Reconciler
from rekindle_service.store import StorageError, Store
from rekindle_service.store.backups import Maintenance

_log = structlog.get_logger(__name__)

_LOCK_INTERVAL = 5.0  # seconds; for as long, commands cannot find a server whose lock was removed


class CannotServeError(Exception):
    """The server cannot start; the message says what to change."""


class _Closable(Protocol):
    def close(self) -> object: ...


_Part = TypeVar("_Part", bound=_Closable)


@dataclass(frozen=True, slots=True)
class _Devices:
    """The slots of this machine, and what watches them."""

    machine: Machine
    states: DeviceStates
    monitor: MachineMonitor
    watch: DeviceWatch


@dataclass(frozen=True, slots=True)
class Parts:
    """Of a server that has its home. Nothing runs before ``start``; closed in the reverse order of their making."""

    state: AppState
    maintenance: Maintenance
    devices: _Devices
    reconciler: Reconciler
    spares: SpareKeepers | None
    launcher: KeeperLauncher

    def start(self) -> None:
        """What is known of the devices first: it decides which of them the jobs get. Raises CannotServeError."""
        try:
            self.devices.states.refresh()
            self.devices.watch.start()
            self.reconciler.start()
        except StorageError as error:
            raise CannotServeError(str(error)) from error
        if self.spares is not None:
            launcher = self.launcher
            self.spares.start(*default_keys(launcher.worker_path, launcher.machine, launcher.isolation))
        self.maintenance.start()
        self.devices.monitor.start()
        self.state.retention.start()


def make_parts(settings: Settings, token: str, isolation: Isolation, stack: ExitStack) -> Parts:
    """Of a home that is ours, whose ``token`` is the administrator's. Raises CannotServeError."""
    home = settings.home_dir
    store = _open_store(home, stack)
    maintenance = _closing(
        stack, Maintenance(store.check, store.verify, store.backups, settings.backup_hours, settings.backups_kept)
    )
    if isolation.users:
        home.close_files()
    devices = _devices(settings, home, store, stack)
    spares = _spare_keepers(settings, isolation, stack)
    worker_path = prepare_worker_path(home)
    launcher = KeeperLauncher(home, devices.machine, worker_path, isolation, Affinity(settings.affinity), spares)
    launchers = _launchers(settings, home, store, devices.machine, isolation, launcher)
    reconciler = _closing(stack, _reconciler(settings, home, store, devices.states, launchers))
    state = _app_state(settings, store, devices, isolation, launchers, reconciler, token, stack)
    stack.callback(start_dispatchers(store, settings.notify))
    return Parts(state, maintenance, devices, reconciler, spares, launcher)


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
    _closing(stack, watch).start()
    return token


def _closing(stack: ExitStack, part: _Part) -> _Part:
    stack.callback(part.close)
    return part


def _devices(settings: Settings, home: Home, store: Store, stack: ExitStack) -> _Devices:
    machine = find_machine(settings.cpu_slots, exclude=settings.excluded_devices)
    find_again = partial(find_machine, 0, exclude=settings.excluded_devices)
    probe = GpuProbe([slot.uuid for slot in machine.slots if slot.uuid])
    states = DeviceStates(store, machine, DeviceHealth())
    monitor = _closing(stack, MachineMonitor(machine, home.root, probe.readings))
    return _Devices(machine, states, monitor, _closing(stack, DeviceWatch(store, home, states, probe, find_again)))


def _app_state(
    settings: Settings,
    store: Store,
    devices: _Devices,
    isolation: Isolation,
    launchers: Launchers,
    reconciler: Reconciler,
    token: str,
    stack: ExitStack,
) -> AppState:
    home = settings.home_dir
    return AppState(
        home=home,
        store=store,
        machine=devices.machine,
        devices=devices.states,
        monitor=devices.monitor,
        retention=_closing(stack, Pruner(home, store, reconciler.deletions, Rules.of(settings))),
        submitter=_submitter(settings, home, store, launchers, isolation, reconciler),
        access=_access_control(settings, store, token, stack),
        host=settings.host,
        public_host=urlsplit(settings.public_url).hostname if settings.public_url else None,
        max_bundle_bytes=settings.bundle_bytes,
        started_at=time.time(),
        stopping=threading.Event(),
        wake=reconciler.wake,
        scheduler_health=reconciler.health,
        prospect=reconciler.prospect,
        isolation=isolation.describe(),
        quotas=_quotas(settings),
        fair_share_days=settings.fair_share_days,
    )


def _spare_keepers(settings: Settings, isolation: Isolation, stack: ExitStack) -> SpareKeepers | None:
    """None where jobs have other rights than this server, or fewer: its processes have its own."""
    if settings.spare_keepers == 0 or not isolation.is_empty:
        return None
    spares = SpareKeepers(settings.spare_keepers, settings.spare_memory, clean_environment(os.environ))
    return _closing(stack, spares)


def _launchers(
    settings: Settings, home: Home, store: Store, machine: Machine, isolation: Isolation, start_keeper: KeeperLauncher
) -> Launchers:
    check_python = _interpreter_check(isolation, home)
    return Launchers.create(LauncherParts(store, home, settings, machine, isolation, start_keeper, check_python))


def _reconciler(
    settings: Settings, home: Home, store: Store, devices: DeviceStates, launchers: Launchers
) -> Reconciler:
    reconciler = Reconciler(
        store,
        home,
        devices.machine,
        launchers,
        healthy_seconds=settings.healthy_seconds,
        log_bytes=settings.log_bytes,
        host_timeout=settings.host_timeout,
        device_health=devices.health,
        displacement=DisplacementRules(settings.preemption, settings.min_run_seconds, _quotas(settings)),
        quotas=_quotas(settings),
        fair_share_days=settings.fair_share_days,
    )
    devices.health.on_change = reconciler.wake
    return reconciler


def _quotas(settings: Settings) -> Quotas:
    return Quotas(settings.quotas, settings.max_queued)


def _submitter(
    settings: Settings, home: Home, store: Store, launchers: Launchers, isolation: Isolation, reconciler: Reconciler
) -> Submitter:
    return Submitter(
        store,
        home,
        launchers,
        check_out,
        EditableModules(isolated=isolation.hides_the_server),
        quotas=_quotas(settings),
        scheduler_problem=lambda: reconciler.health().problem(),
    )


def _interpreter_check(isolation: Isolation, home: Home) -> InterpreterCheck:
    """A server whose own interpreter is hidden from jobs starts: a job may name another one."""
    try:
        unreachable = unreachable_interpreter(isolation, home)
    except OSError as error:
        raise _unusable(home, error) from error
    if unreachable is not None:
        problem = f"{sys.executable}, the interpreter of jobs that name none, {unreachable}"
        _log.warning("Jobs cannot use the interpreter of this server", problem=problem, hint=UNREACHABLE_ADVICE)
    return InterpreterCheck(isolated=isolation.hides_the_server, unreachable=unreachable)


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


def _access_control(settings: Settings, store: Store, token: str, stack: ExitStack) -> AccessControl:
    access = AccessControl(
        store,
        token,
        private_jobs=settings.private_jobs,
        max_priority=settings.max_priority,
        request_rate=settings.request_rate,
        socket_scope=Scope(settings.socket_scope) if settings.socket_group else None,
    )
    access.start()
    return _closing(stack, access)
