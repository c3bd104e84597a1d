"""Launchers whose keepers are fakes, started as the real ones are."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rekindle_service.config.home import Home
from rekindle_service.launch.isolation.job_isolation import Isolation
from rekindle_service.launch.isolation.rights import SubmitRights
from rekindle_service.launch.launcher import KeeperStarter
from rekindle_service.launch.local.local_launcher import LocalLauncher
from rekindle_service.launch.registry import Launchers
from rekindle_service.launch.slurm.batch_job import LaunchFiles
from rekindle_service.launch.slurm.poller import SlurmPoller
from rekindle_service.launch.slurm.slurm_commands import SlurmCommands
from rekindle_service.launch.slurm.slurm_launcher import NO_COMMANDS, NO_SLURM, SlurmLauncher
from rekindle_service.machine.slots import Machine
from rekindle_service.store import Store
from rekindle_service.store.tables import Job
from rekindle_service.submission import FieldError


@dataclass(frozen=True)
class FakeInterpreters:
    """The server's own is the default; ``check`` returns what is wrong with one."""

    check: Callable[[str], FieldError | None] = lambda _: None

    def default(self) -> str:
        return sys.executable

    def errors(self, python: str) -> list[FieldError]:
        error = self.check(python)
        return [] if error is None else [error]


def launch_fake(home: Home) -> KeeperStarter:
    def launch(job: Job) -> "subprocess.Popen[bytes]":
        run_dir = home.run_dir(job.id)
        with run_dir.keeper_log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__).with_name("fake_keeper.py")), str(run_dir.root)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    return launch


def slurm_launcher(
    store: Store, home: Home, commands: SlurmCommands | None = None, poller: SlurmPoller | None = None
) -> SlurmLauncher:
    """The launcher of a server with ``commands``; None: of one that has none."""
    lack, refusal = (NO_COMMANDS, NO_SLURM) if commands is None else (None, None)
    used = commands or SlurmCommands()
    files = LaunchFiles(home, home.root / "worker")
    return SlurmLauncher(home, store, used, poller or SlurmPoller(used, 0.05), files, 60.0, lack=lack, refusal=refusal)


def fake_launchers(
    store: Store,
    home: Home,
    machine: Machine,
    start: KeeperStarter | None = None,
    slurm: SlurmLauncher | None = None,
    check_python: Callable[[str], FieldError | None] = lambda _: None,
) -> Launchers:
    """Every launcher of a server without isolation; ``start``: of local keepers, by default fakes."""
    local = LocalLauncher(home, machine, start or launch_fake(home), FakeInterpreters(check_python))
    return Launchers([slurm or slurm_launcher(store, home), local], SubmitRights(Isolation(), home))
