"""The home: the directory of the database, the token and every run, owned by one live server and its user."""

import fcntl
import os
import pwd
import re
import secrets
import shutil
import time
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryFile

from rekindle.contract.files import atomic_write, read_json, write_json
from rekindle.contract.locks import ExclusiveLock, LockHeldError, lock_holder
from rekindle.contract.run_dir.paths import RunDir

DELETED = ".deleted-"
"""Prefix of the names in ``runs`` of what is to be removed."""

MIN_FREE_BYTES = 100 << 20
"""Less free space than this, and the server is not ready: it accepts and starts no job."""

_JOB_ID = re.compile(r"[a-z0-9]{10}")
_OPEN_TO_OTHERS = 0o077
_TRAVERSE = 0o011  # of a home whose jobs run as other users
_HOME_FILES = ("server.lock", "rekindle.toml", "server.log")  # any of them is made by a server, or for one


class HomeInUseError(Exception):
    """Another live server owns this home, or the directory is used for something else."""


class Home:
    """Every path of a home. Nothing here reads settings or rows."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.database = root / "rekindle.db"
        self.token = root / "token"  # the secret that every request must carry; mode 0600
        self.server_json = root / "server.json"  # {"url", "pid", "started_at"} while a server runs; mode 0600
        self.socket = root / "rekindle.sock"  # for users of this machine, who need no token there
        self.server_lock = root / "server.lock"  # held by the one live server of this home
        self.runs = root / "runs"
        self.experiments = root / "experiments"  # one file each; see ``experiments.experiment_records``
        self.backups = root / "backups"  # of the database
        self.mirrors = root / "mirrors"  # how far the copies of each job off the box have come; no job can change it
        self.bundles = root / "bundles"  # uploaded code, each bundle unpacked in a directory named by its hash
        self.worker_copies = root / "worker-copy"  # ``rekindle`` for the interpreters of jobs, a directory per version

    def run_dir(self, job_id: str) -> RunDir:
        """The run directory of a job. Raises ValueError for what is no job id, so no request can name a path."""
        if not is_job_id(job_id):
            raise ValueError(f"a job id is ten lower-case letters or digits, not {job_id!r}")
        return RunDir(self.runs / job_id)

    def new_run(self, job_id: str) -> RunDir:
        """Where a submitted job is built before it is renamed to its ``run_dir``."""
        return RunDir(self.runs / f".new-{job_id}")

    def mirror(self, job_id: str) -> Path:
        return self.mirrors / f"{job_id}.json"

    def mirror_lock(self, job_id: str) -> Path:
        return self.mirrors / f"{job_id}.lock"

    def experiment(self, experiment_id: str) -> Path:
        return self.experiments / f"{experiment_id}.json"

    def deleted_run(self, job_id: str) -> Path:
        """Where a run directory is renamed to before its files are removed one by one."""
        return self.runs / f"{DELETED}{job_id}"

    def lack_of_space(self, needed: int = 0) -> str | None:
        """Why no job may be submitted or started now; None where there is space for what jobs write at their start.

        ``needed``: bytes that this job writes besides.
        """
        free = min(shutil.disk_usage(directory).free for directory in (self.root, self.runs) if directory.exists())
        if free >= MIN_FREE_BYTES + needed:
            return None
        purpose = f" ({needed >> 20} MB for its next checkpoint)" if needed else ""
        return f"{free >> 20} MB free, at least {(MIN_FREE_BYTES + needed) >> 20} MB are needed{purpose}"

    def unwritable(self) -> str | None:
        """Why nothing can be written to the disk of the home or of the runs; None where it can.

        A file system that has found an error forbids writing, without being mounted so.
        """
        for directory in (self.root, self.runs):
            try:
                with TemporaryFile(dir=directory):
                    pass
            except OSError as error:
                return f"{directory} cannot be written: {error.strerror}"
        return None

    def create(self, *, traversable: bool = False) -> None:
        """Create the directories, readable by their owner only. Raises OSError.

        ``traversable``: others may reach what they own in it, their runs, but list nothing.

        Raises HomeInUseError for a directory that is open to others and has other content: ``/tmp``, or a project.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.root.stat().st_mode & _OPEN_TO_OTHERS & ~_TRAVERSE:
            if any(self.root.iterdir()) and not any((self.root / sign).exists() for sign in _HOME_FILES):
                raise HomeInUseError(
                    f"{self.root} holds other files, and a home is closed to other users: "
                    f"choose an empty directory, such as {self.root / '.rekindle'}"
                )
            self.root.chmod(0o700)
        for directory in (self.runs, self.mirrors):
            directory.mkdir(mode=0o700, exist_ok=True)
        if traversable:
            self.close_files()
        for directory in (self.root, self.runs):
            directory.chmod(0o711 if traversable else 0o700)

    def close_files(self) -> None:
        """Close to others what a server of other settings has left open behind a closed directory."""
        for entry in os.scandir(self.root):
            mode = entry.stat(follow_symlinks=False).st_mode & 0o777
            if mode & _OPEN_TO_OTHERS and not entry.is_symlink() and entry.name not in ("runs", "worker-copy"):
                Path(entry.path).chmod(mode & ~_OPEN_TO_OTHERS)

    def lock(self) -> "HomeLock":
        """Own this home until ``release`` or the end of the process. Raises HomeInUseError when a live server does."""
        try:
            return HomeLock(self)
        except (LockHeldError, BlockingIOError) as error:
            owner = self._owner()
            server = "another server" if owner is None else f"the server with pid {owner}"
            raise HomeInUseError(
                f"{self.root} is in use by {server}: use that one, stop it, "
                "or choose another directory with REKINDLE_HOME"
            ) from error

    def _owner(self) -> int | None:
        """Pid of the server that owns this home. ``server.json`` names it where its ``server.lock`` was removed."""
        announced = read_json(self.server_json)
        return lock_holder(self.server_lock) or (announced.get("pid") if isinstance(announced, dict) else None)

    def ensure_token(self) -> str:
        """The token; made at the first call and never again."""
        if not self.token.exists() or not self.token.read_text().strip():
            atomic_write(self.token, secrets.token_urlsafe(32).encode() + b"\n")
        return self.token.read_text().strip()

    def write_server_info(self, url: str) -> None:
        """Write ``server.json``, where clients on this machine find this server. Precondition: it holds the lock."""
        write_json(self.server_json, {"url": url, "pid": os.getpid(), "started_at": time.time()})

    def remove_server_info(self) -> None:
        """Remove ``server.json``, unless it is another server's by now."""
        server = read_json(self.server_json)
        if isinstance(server, dict) and server.get("pid") == os.getpid():
            self.server_json.unlink(missing_ok=True)


class HomeLock:
    """Ownership of a home by one process. Raises LockHeldError, BlockingIOError where another one has it.

    ``server.lock`` names the owner to other processes, but it can be removed, and whoever makes it again could lock it.
    So the directory itself is locked first. Only ``flock`` can lock one; no program inherits its descriptor.
    """

    def __init__(self, home: Home) -> None:
        self._path = home.server_lock
        self._directory = os.open(home.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._file = ExclusiveLock(self._path)
        except BaseException:
            os.close(self._directory)
            raise

    def restore(self) -> None:
        """Make ``server.lock`` again where it was removed or replaced: without it, nobody finds the owner."""
        if not self._file.is_in_place:
            removed, self._file = self._file, ExclusiveLock(self._path)
            removed.release()

    def release(self) -> None:
        self._file.release()
        os.close(self._directory)


def new_job_id() -> str:
    """Ten random lower-case letters and digits: 51 bits, fit for a file name, a URL and a spoken word."""
    alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
    return "".join(secrets.choice(alphabet) for _ in range(10))


def is_job_id(text: str) -> bool:
    return _JOB_ID.fullmatch(text) is not None


@lru_cache(maxsize=1024)
def user_name(uid: int) -> str:
    """The name of a user, or ``uid-1234`` for a number without an account, as in a container."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


def server_uid() -> int:
    return os.geteuid()


def server_user() -> str:
    """The name of the user who runs this process: the owner of the home, and of its token."""
    return user_name(server_uid())
