"""Starting the keeper of a job, so that it outlives this server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rekindle.contract.cores import Affinity
from rekindle.contract.environment import AFFINITY, RUN_DIR, clean_environment
from rekindle.contract.files import fsync_directory
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import open_append
from rekindle_service.config.home import Home
from rekindle_service.launch.isolation.job_isolation import Isolation
from rekindle_service.launch.launcher import KeeperProcess
from rekindle_service.launch.local.spare_keepers import KEEPER, SpareKeepers, SpareKey, spare_key
from rekindle_service.machine.slots import Machine, Slot, cuda_visible_devices
from rekindle_service.secret_values import job_variables, stored_values
from rekindle_service.store.tables import Job

_MAX_FORKED = 1000  # launches that are remembered


@dataclass(frozen=True, slots=True)
class KeeperLauncher:
    """Launches keepers for the reconciler; ``worker_path`` is from ``prepare_worker_path``."""

    home: Home
    machine: Machine
    worker_path: Path
    isolation: Isolation = field(default_factory=Isolation)
    affinity: Affinity = Affinity.NONE
    spares: SpareKeepers | None = None
    _forked: dict[str, tuple[int, int]] = field(default_factory=dict)  # by job: run and end of journal when it was

    def __call__(self, job: Job) -> KeeperProcess:
        """Start the keeper in a session of its own, with nothing of ours but standard streams. Raises OSError."""
        run_dir = self.home.run_dir(job.id)
        log = open_append(run_dir.keeper_log)
        try:
            return self._start(job, run_dir, log)
        except OSError as error:
            os.write(log, f"The keeper cannot be started: {error}\n".encode(errors="replace"))
            raise
        finally:
            os.close(log)

    def _start(self, job: Job, run_dir: RunDir, log: int) -> KeeperProcess:
        user = self.isolation.users.of(job.owner)
        inherited = self.isolation.inherited(clean_environment(os.environ), user)
        environment = keeper_environment(job, self.worker_path, self.machine.slots, inherited, stored_values(run_dir))
        environment |= self.isolation.tmp_environment(run_dir, environment)
        environment[AFFINITY] = f"{self.affinity} {self.machine.count('cpu')}"
        environment[RUN_DIR] = str(run_dir.root)  # by which a later keeper finds what this one leaves
        command, own, plan = self.isolation.launch(
            [job.spec.python, *KEEPER, str(run_dir.root)], environment, run_dir, user
        )
        if plan is None and (keeper := self._fork(job, environment, run_dir, log)) is not None:
            return keeper
        with readable(plan) as stdin:
            return subprocess.Popen(
                command,
                stdin=stdin,
                stdout=log,
                stderr=log,
                cwd=run_dir.code if plan is None else None,
                env=own,
                start_new_session=True,
            )

    def _fork(self, job: Job, environment: dict[str, str], run_dir: RunDir, log: int) -> KeeperProcess | None:
        """From a spare keeper; None where there is none for this job, or where one has ended without having begun."""
        state = (job.run, job.journal_offset)
        if self.spares is None or not job.spec.warm or self._forked.pop(job.id, None) == state:
            return None
        request = {"run_dir": str(run_dir.root), "cwd": str(run_dir.code), "environment": environment}
        keeper = self.spares.launch(spare_key(job.spec.python, environment), request, log)
        if keeper is not None:
            self._forked[job.id] = state
            while len(self._forked) > _MAX_FORKED:
                del self._forked[next(iter(self._forked))]
        return keeper


@contextmanager
def readable(plan: dict[str, Any] | None) -> Iterator[int]:
    """Standard input of the process: the plan, in memory since it has the values of ``env``, or nothing."""
    if plan is None:
        yield subprocess.DEVNULL
        return
    with os.fdopen(os.memfd_create("plan", os.MFD_CLOEXEC), "w+b") as file:
        file.write(json.dumps(plan).encode())
        file.seek(0)
        yield file.fileno()


def keeper_environment(
    job: Job,
    worker_path: Path,
    slots: tuple[Slot, ...],
    inherited: Mapping[str, str] = os.environ,
    values: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of the keeper, and through it of every rank. Raises MissingVariableError.

    The server's own, cleaned, then what the job sets, then what rekindle needs: its slots' GPUs and no other, and
    ``rekindle`` first on the path. OMP_NUM_THREADS is pinned, since another number of threads sums in another
    order: the same for every attempt, whatever torchrun's default. ``values``: see ``stored_values``.
    """
    inherited = clean_environment(inherited)
    environment = {**inherited, **job_variables(job.spec, values or {}, inherited)}
    if job.spec.max_ranks > 1:
        environment.setdefault("OMP_NUM_THREADS", "1")
    environment["CUDA_VISIBLE_DEVICES"] = cuda_visible_devices(slots, job.devices)
    path = environment.get("PYTHONPATH")
    environment["PYTHONPATH"] = f"{worker_path}{os.pathsep}{path}" if path else str(worker_path)
    return environment


def default_keys(worker_path: Path, machine: Machine, isolation: Isolation) -> list[SpareKey]:
    """Of jobs with this server's interpreter and no variables of their own: on several slots if there are, on one."""
    environment = isolation.inherited(clean_environment(os.environ), None)
    environment |= isolation.tmp_environment(RunDir(worker_path), environment)
    environment["PYTHONPATH"] = str(worker_path)
    several = {"OMP_NUM_THREADS": "1", **environment}
    keys = [spare_key(sys.executable, each) for each in (several, environment)]
    return list(dict.fromkeys(keys)) if len(machine.slots) > 1 else keys[1:]


def prepare_worker_path(home: Home) -> Path:
    """Create the directory that gives ``rekindle``, and nothing else of this installation, to any interpreter."""
    spec = find_spec("rekindle")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"the package rekindle is not installed together with the service in {sys.prefix}")
    package = spec.submodule_search_locations[0]
    link = home.worker_path / "rekindle"
    home.worker_path.mkdir(mode=0o755, exist_ok=True)
    home.worker_path.chmod(0o755)  # jobs may run as other users; the home decides who gets here
    if not link.is_symlink() or str(link.readlink()) != package:
        temporary = home.worker_path / ".rekindle.new"
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(package)
        temporary.replace(link)
        fsync_directory(home.worker_path)
    return home.worker_path
