"""Starting the keeper of a job, so that it outlives this server."""

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rekindle.contract.environment import RUN_DIR, clean_environment
from rekindle.contract.files import fsync_directory
from rekindle.contract.safe_open import open_append
from rekindle_service.config.home import Home
from rekindle_service.machine.devices import Machine, Slot, cuda_visible_devices
from rekindle_service.store.tables import Job

KEEPER = ("-P", "-m", "rekindle.keeper")
"""``-P``: a ``json.py`` next to the user's script must not be what the keeper imports."""


@dataclass(frozen=True, slots=True)
class KeeperLauncher:
    """Launches keepers for the reconciler; ``worker_path`` is from ``prepare_worker_path``."""

    home: Home
    machine: Machine
    worker_path: Path

    def __call__(self, job: Job) -> "subprocess.Popen[bytes]":
        """Start the keeper in a session of its own, with nothing of ours but standard streams. Raises OSError."""
        run_dir = self.home.run_dir(job.id)
        environment = keeper_environment(job, self.worker_path, self.machine.slots)
        log = open_append(run_dir.keeper_log)
        try:
            return subprocess.Popen(
                [job.spec.python, *KEEPER, str(run_dir.root)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=run_dir.code,
                env={**environment, RUN_DIR: str(run_dir.root)},  # by which a later keeper finds what this one leaves
                start_new_session=True,
            )
        finally:
            os.close(log)


def keeper_environment(
    job: Job, worker_path: Path, slots: tuple[Slot, ...], inherited: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """The environment of the keeper, and through it of every rank.

    The server's own, cleaned, then what the job sets, then what rekindle needs: its slots' GPUs and no other, and
    ``rekindle`` first on the path. OMP_NUM_THREADS is pinned, since another number of threads sums in another
    order: the same for every attempt, whatever torchrun's default.
    """
    environment = {**clean_environment(inherited), **job.spec.env}
    if job.spec.max_ranks > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")
    environment["CUDA_VISIBLE_DEVICES"] = cuda_visible_devices(slots, job.devices)
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{worker_path}{os.pathsep}{path}" if path else str(worker_path)
    return environment


def prepare_worker_path(home: Home) -> Path:
    """Create the directory that gives ``rekindle``, and nothing else of this installation, to any interpreter."""
    spec = find_spec("rekindle")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"the package rekindle is not installed together with the service in {sys.prefix}")
    package = spec.submodule_search_locations[0]
    link = home.worker_path / "rekindle"
    home.worker_path.mkdir(mode=0o700, exist_ok=True)
    if not link.is_symlink() or str(link.readlink()) != package:
        temporary = home.worker_path / ".rekindle.new"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(package)
        temporary.replace(link)
        fsync_directory(home.worker_path)
    return home.worker_path
