"""Keepers on this machine: how one is started, so that it outlives this server, which jobs have a live one, and when a
lost one is launched again.
"""

import errno
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from rekindle.contract.cores import Affinity
from rekindle.contract.environment import AFFINITY, RUN_DIR, clean_environment
from rekindle.contract.files import check_free_space, fsync_directory, source_digest
from rekindle.contract.job import JobSpec
from rekindle.contract.locks import lock_holder
from rekindle.contract.run_dir.paths import RunDir
from rekindle.contract.safe_open import open_append, read_end
from rekindle_service.config.home import Home
from rekindle_service.launch.isolation.job_isolation import Isolation
from rekindle_service.launch.launcher import (
    Interpreters,
    KeeperProcess,
    KeeperStarter,
    LaunchCounts,
    Launcher,
    LauncherParts,
    keeper_failure,
)
from rekindle_service.launch.local.spare_keepers import KEEPER, SpareKeepers, SpareKey, spare_key
from rekindle_service.launch.placement import Placement, device_errors, place_here
from rekindle_service.machine.slots import Machine, Slot, cuda_visible_devices
from rekindle_service.store.tables import Job
from rekindle_service.submission import FieldError, Submission, job_variables, stored_values

_MAX_FORKED = 1000  # launches that are remembered


@dataclass(frozen=True, slots=True)
class KeeperLauncher:
    """Launches keepers for the reconciler; ``worker_path`` is from ``prepare_worker_copy``."""

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
        """Fork the keeper from a spare one; None where there is none, or one has ended without having begun."""
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


def default_keys(python: str, worker_path: Path, machine: Machine, isolation: Isolation) -> list[SpareKey]:
    """Keys of jobs with this interpreter and no variables of their own, on several slots and on one."""
    environment = isolation.inherited(clean_environment(os.environ), None)
    environment |= isolation.tmp_environment(RunDir(worker_path), environment)
    environment["PYTHONPATH"] = str(worker_path)
    several = {"OMP_NUM_THREADS": "1", **environment}
    keys = [spare_key(python, each) for each in (several, environment)]
    return list(dict.fromkeys(keys)) if len(machine.slots) > 1 else keys[1:]


def prepare_worker_copy(home: Home) -> Path:
    """The directory that gives ``rekindle``, and nothing else of this installation, to any interpreter. Raises OSError.

    Each version has its own, named by its content: a running job keeps that with which it was started. A copy that
    something has changed is made again.
    """
    spec = find_spec("rekindle")
    if spec is None or spec.submodule_search_locations is None:
        raise ModuleNotFoundError(f"the package rekindle is not installed together with the service in {sys.prefix}")
    package = Path(spec.submodule_search_locations[0])
    digest = source_digest(package)
    target = home.worker_copies / digest
    if source_digest(target / "rekindle") == digest:
        return target
    home.worker_copies.mkdir(mode=0o755, exist_ok=True)
    home.worker_copies.chmod(0o755)  # jobs may run as other users; the home decides who gets here
    new = Path(tempfile.mkdtemp(dir=home.worker_copies, prefix=".new-"))
    try:
        shutil.copytree(package, new / "rekindle", ignore=_TEMPORARY)
        new.chmod(0o755)
        shutil.rmtree(target, ignore_errors=True)
        new.rename(target)
        fsync_directory(home.worker_copies)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return target


def remove_worker_copies(current: Path) -> None:
    """Remove the copies of other versions than ``current``. Precondition: no job runs."""
    for other in current.parent.iterdir():
        if other != current:
            shutil.rmtree(other, ignore_errors=True)


_TEMPORARY = shutil.ignore_patterns("*.pyc.*")  # of an interpreter that compiles a module just now


_EVIDENCE_BYTES = 4000  # of the end of a keeper's log
TRANSIENT_ERRNOS = frozenset(
    {
        *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO),  # the disk
        *(errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE),  # processes, memory, open files
    }
)
"""What this machine lacks now and may have later: no job fails for it."""


@dataclass(slots=True)
class _Launch:
    """The latest keeper that this server has started for a job."""

    counts: LaunchCounts
    process: KeeperProcess | None = None  # None: it could not even be started


class LocalLauncher(Launcher):
    """Keepers on this machine. One of an earlier server is found by its lock."""

    name, title = "local", "this machine"

    def __init__(self, home: Home, machine: Machine, start: KeeperStarter, interpreters: Interpreters) -> None:
        self._home, self._machine, self._start, self._interpreters = home, machine, start, interpreters
        self._ends = ProcessEnds(lambda: self.on_end())
        self._launches: dict[str, _Launch] = {}

    @classmethod
    def claims(cls, spec: JobSpec) -> bool:  # of the interface
        return True

    @classmethod
    def create(cls, parts: LauncherParts) -> Self:
        return cls(parts.home, parts.machine, parts.start_keeper, parts.interpreters)

    def place(self, submission: Submission) -> Placement:
        return place_here(submission, self._machine)

    def fill_in(self, submission: Submission) -> Submission:
        if submission.spec.python:
            return submission
        return replace(submission, spec=replace(submission.spec, python=self._interpreters.default()))

    def validate(self, spec: JobSpec) -> list[FieldError]:
        return [*device_errors(spec, self._machine), *self._interpreters.errors(spec.python)]

    def alive(self, job: Job) -> bool:
        """Whether any keeper of the job runs: one that we started, even before it has its lock, or one that owns it."""
        launch = self._launches.get(job.id)
        if launch is not None and launch.process is not None and launch.process.poll() is None:
            return True
        holder = lock_holder(self._home.run_dir(job.id).keeper_lock)
        if holder is not None:
            self._ends.watch(holder)
        return holder is not None

    def crash_looping(self, job: Job) -> bool:
        """A death is not the job's fault while nothing can be written into its directory: then OSError is raised."""
        launch = self._launches.get(job.id)
        if launch is None or launch.counts.run != job.run:
            return False
        launch.counts.count_end(job, partial(_check_host, self._home.run_dir(job.id).root))
        return launch.counts.crash_looping

    def failure(self, job: Job) -> tuple[str, str]:
        log = self._home.run_dir(job.id).keeper_log
        tail = read_end(log, _EVIDENCE_BYTES)
        return keeper_failure("The keeper", tail, log), tail

    def launch(self, job: Job, write_intent: Callable[[Job], None]) -> None:
        last = self._launches.get(job.id)
        if last is None or last.counts.run != job.run:
            last = _Launch(LaunchCounts(job.run, job.journal_offset))
        if last.counts.too_early:
            return
        following = _Launch(replace(last.counts, journal_offset=job.journal_offset, counted=False))
        self._launches[job.id] = following
        try:
            write_intent(job)
            following.process = self._start(job)
            self._ends.watch(following.process.pid)
        except OSError as error:
            if error.errno in TRANSIENT_ERRNOS:
                following.counts.count_host_failure()
            raise

    def stop(self, job: Job) -> None:
        """Send SIGTERM alone: a keeper that receives it drains the job and leaves it to the next one."""
        launch = self._launches.get(job.id)
        if launch is not None and launch.process is not None:
            launch.process.terminate()
            return
        if (pid := lock_holder(self._home.run_dir(job.id).keeper_lock)) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)

    def observe(self, jobs: Sequence[Job]) -> None:
        """Collect ended keepers of jobs that hold no slots any more, so that none stays a zombie."""
        holding = {job.id for job in jobs}
        for job_id in [one for one in list(self._launches) if one not in holding]:
            process = self._launches[job_id].process
            if process is None or process.poll() is not None:
                del self._launches[job_id]

    def detach(self) -> None:
        """Forget all keepers: they outlive this server on purpose."""
        for launch in list(self._launches.values()):
            if isinstance(launch.process, subprocess.Popen) and launch.process.poll() is None:
                launch.process.returncode = 0  # else its destructor would warn of a forgotten child
        self._launches.clear()
        self._ends.close()


def _check_host(run_dir: Path) -> None:
    """Raises OSError where the machine, not the directory, prevents a small file from being written there."""
    try:
        check_free_space(run_dir)
    except OSError as error:
        if error.errno in TRANSIENT_ERRNOS:
            raise


class ProcessEnds:
    """Reports the end of processes at once, whoever their parent is. Any thread may call it."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        """``on_end`` is called in a thread of its own."""
        self._on_end = on_end
        self._lock = threading.Lock()
        self._watch: _Watch | None = None

    def watch(self, pid: int) -> None:
        """Call ``on_end`` when ``pid`` has ended, or at once where it just has; once for each process."""
        with self._lock:
            if self._watch is None:
                self._watch = _Watch(self._on_end)
                self._watch.start()
            self._watch.add(pid)

    def close(self) -> None:
        """Watch nothing any more. Precondition: no other thread calls ``watch``."""
        if self._watch is not None:
            self._watch.stop()
            self._watch = None


class _Watch(threading.Thread):
    """Owns its descriptors until it is stopped."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        super().__init__(name="process-ends", daemon=True)
        self._on_end = on_end
        self._lock = threading.Lock()
        self._watched: dict[int, int] = {}  # descriptor by pid
        self._epoll = select.epoll()
        self._stopping = os.eventfd(0)
        self._epoll.register(self._stopping, select.EPOLLIN)

    def add(self, pid: int) -> None:
        with self._lock, suppress(ProcessLookupError):
            if pid not in self._watched:
                self._watched[pid] = os.pidfd_open(pid)
                self._epoll.register(self._watched[pid], select.EPOLLIN)

    def stop(self) -> None:
        os.eventfd_write(self._stopping, 1)
        self.join()
        for fd in (*self._watched.values(), self._stopping):
            os.close(fd)
        self._epoll.close()

    def run(self) -> None:
        while all(self._handle(fd) for fd, _ in self._epoll.poll()):
            pass

    def _handle(self, fd: int) -> bool:
        """False where it is to stop."""
        if fd == self._stopping:
            return False
        with self._lock:
            pid = next(each for each, watched in self._watched.items() if watched == fd)
            self._epoll.unregister(fd)  # to close it is not enough while a process forked just now still has it, too
            os.close(self._watched.pop(pid))
        self._on_end()
        return True
