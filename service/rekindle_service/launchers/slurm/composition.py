"""The parts of Slurm's launcher put together, where this machine has Slurm's commands."""

from collections.abc import Callable

from rekindle_service.config.home import Home
from rekindle_service.config.settings import Settings
from rekindle_service.launchers.slurm.cluster import SlurmCluster
from rekindle_service.launchers.slurm.commands import SlurmCommands, missing_commands
from rekindle_service.launchers.slurm.launch_files import LaunchFiles
from rekindle_service.launchers.slurm.launcher import Record, SlurmLauncher
from rekindle_service.launchers.slurm.poller import SlurmPoller
from rekindle_service.launchers.slurm.worker_copy import prepare_worker_copy
from rekindle_service.store.tables import Job


def slurm_cluster() -> SlurmCluster | None:
    """For submissions."""
    return None if missing_commands() else SlurmCluster(SlurmCommands())


def slurm_launcher(home: Home, settings: Settings) -> Callable[[Record, Callable[[Job], None]], SlurmLauncher] | None:
    """For the reconciler; None where a command is missing. Raises OSError where the home cannot be written."""
    if missing_commands():
        return None
    files = LaunchFiles(home, prepare_worker_copy(home))
    poller = SlurmPoller(SlurmCommands(), settings.slurm_poll_seconds)

    def make(record: Record, prepare: Callable[[Job], None]) -> SlurmLauncher:
        return SlurmLauncher(home, poller, files, record, prepare, settings.host_timeout)

    return make
