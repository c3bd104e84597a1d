"""The settings of isolation as one object: checked when the server starts, applied whenever a keeper is started."""

import os
import pwd
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rekindle.contract.environment import PRIVATE_TMP
from rekindle.contract.run_dir.paths import RunDir
from rekindle_service.config.home import Home, server_user
from rekindle_service.config.settings import Settings
from rekindle_service.launch.isolation.sandbox import (
    HIDDEN,
    TMP,
    CgroupLimits,
    CgroupParent,
    NoCgroupError,
    Sandbox,
    find_program,
    home_inside,
    lack_of_sandbox,
)

ANY_OWNER = "*"
OWN_NAME = "{owner}"
"""Stands for the UNIX user that is called like the owner of the job."""


class NoUserError(OSError):
    """No UNIX user can run the job; the message says what to change."""


@dataclass(frozen=True, slots=True)
class UnixUser:
    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: Path

    @classmethod
    def named(cls, name: str) -> "UnixUser":
        """Raises NoUserError for a name without an account, and for root."""
        try:
            entry = pwd.getpwnam(name)
        except (KeyError, ValueError) as error:
            hint = "create it (useradd --system), or change the setting job_users"
            raise NoUserError(f"this machine has no UNIX user {name!r}: {hint}") from error
        if entry.pw_uid == 0:
            raise NoUserError(f"jobs must not run as {name!r}, whose user id is 0: change the setting job_users")
        groups = tuple(os.getgrouplist(name, entry.pw_gid))
        return cls(name, entry.pw_uid, entry.pw_gid, groups, Path(entry.pw_dir))


@dataclass(frozen=True, slots=True)
class JobUsers:
    """The setting ``job_users``: names of UNIX users by owner, ``*`` for all others."""

    names: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.names)

    def of(self, owner: str | None) -> UnixUser | None:
        """None where jobs run as the server's own user. Raises NoUserError."""
        if not self.names:
            return None
        name = self.names.get(owner or "", self.names.get(ANY_OWNER))
        if name is None or (name == OWN_NAME and owner is None):
            who = "a job without an owner" if owner is None else f"the jobs of {owner}"
            raise NoUserError(f"the setting job_users names no UNIX user for {who}: add one, or {ANY_OWNER!r} for all")
        return UnixUser.named(owner if name == OWN_NAME and owner is not None else name)

    def check(self) -> None:
        """Raises NoUserError where a user that the setting names cannot be used, whoever submits."""
        for name in self.names.values():
            if name != OWN_NAME:
                UnixUser.named(name)


def may_reach(user: UnixUser, path: Path) -> bool:
    """Whether the permissions of all directories above ``path`` let ``user`` through; ACLs are not considered."""
    groups = {user.gid, *user.groups}
    for directory in path.resolve().parents:
        status = directory.stat()
        shift = 6 if status.st_uid == user.uid else 3 if status.st_gid in groups else 0
        if not status.st_mode >> shift & 1:
            return False
    return True


_PROTECTED_HARDLINKS = Path("/proc/sys/fs/protected_hardlinks")
_ENTER = Path(__file__).with_name("enter_sandbox.py")
_PASSED = {
    "PATH", "LANG", "LANGUAGE", "TZ", "TERM", "LD_LIBRARY_PATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
}  # fmt: skip
_PASSED_PREFIXES = (
    "LC_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "TORCH_", "PYTORCH_", "OMP_", "MKL_", "KMP_", "OPENBLAS_",
)  # fmt: skip
"""Variables of the server that an isolated job gets: the rest may hold secrets of whoever started the server."""


class IsolationError(Exception):
    """The settings cannot be applied on this machine; the message says what to change."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """What jobs are kept from; without arguments, from nothing."""

    users: JobUsers = field(default_factory=lambda: JobUsers({}))
    sandbox: Sandbox | None = None
    cgroup: CgroupParent | None = None
    limits: Mapping[str, int] = field(default_factory=dict)  # by the name in ``resource``
    no_new_privs: bool = False
    private_tmp: bool = True
    pass_env: tuple[str, ...] = ()

    @property
    def hides_the_server(self) -> bool:
        """Whether a job has other rights than the server, so that nothing of the server's may reach it."""
        return bool(self.users) or self.sandbox is not None

    @property
    def is_empty(self) -> bool:
        """Whether a job has all rights of the server and no limits."""
        return not (self.hides_the_server or self.cgroup or self.limits or self.no_new_privs)

    def inherited(self, environment: Mapping[str, str], user: UnixUser | None) -> dict[str, str]:
        """What a job of ``user`` gets of the server's ``environment``."""
        if not self.hides_the_server:
            return dict(environment)
        wanted = _PASSED | set(self.pass_env)
        passed = {
            name: value for name, value in environment.items() if name in wanted or name.startswith(_PASSED_PREFIXES)
        }
        name = user.name if user is not None else environment.get("USER", "")
        return {**passed, "HOME": str(self._home_of(user)), "USER": name, "LOGNAME": name}

    def tmp_environment(self, run_dir: RunDir, environment: Mapping[str, str]) -> dict[str, str]:
        """What gives the job a temporary directory of its own; nothing where it has named one in ``environment``."""
        if self.sandbox is not None:
            return {"TMPDIR": TMP, PRIVATE_TMP: str(run_dir.tmp)}
        if not self.private_tmp or "TMPDIR" in environment:
            return {}
        shared, own = tempfile.gettempdir(), str(run_dir.private_tmp)
        caches = {} if self.hides_the_server else {"TORCHINDUCTOR_CACHE_DIR": f"{shared}/torchinductor_{server_user()}"}
        return {"TMPDIR": own, PRIVATE_TMP: own, **{name: caches[name] for name in caches if name not in environment}}

    def launch(
        self, command: list[str], environment: dict[str, str], run_dir: RunDir, user: UnixUser | None
    ) -> tuple[list[str], dict[str, str], dict[str, Any] | None]:
        """Command and environment of the process to start, and the plan that it reads, if any. Raises OSError."""
        if self.is_empty:
            return command, environment, None
        bwrap = None
        if self.sandbox is not None:
            bwrap = self.sandbox.command(run_dir, _user_home(user), run_dir.tmp)
        plan = {
            "user": None if user is None else [user.uid, user.gid, list(user.groups)],
            "run_dir": str(run_dir.root),
            "cgroup": None if self.cgroup is None else str(self.cgroup.create(run_dir.job_id)),
            "limits": dict(self.limits),
            "no_new_privs": self.no_new_privs or user is not None,
            "directories": [] if self.sandbox is None else [str(run_dir.tmp)],
            "cwd": str(run_dir.code) if bwrap is None else "/",
            "command": command,
            "environment": environment,
            "bwrap": bwrap,
        }
        return [sys.executable, "-I", "-S", str(_ENTER)], {"PATH": os.defpath, "LANG": "C.UTF-8"}, plan

    def _home_of(self, user: UnixUser | None) -> Path:
        return _user_home(user) if self.sandbox is None else home_inside(_user_home(user))

    def describe(self) -> str:
        """One sentence: from what jobs are kept apart, and from what not."""
        if self.sandbox is not None and self.users:
            return "Each job runs in a sandbox, as the UNIX user of its owner."
        if self.sandbox is not None:
            return (
                "Each job runs in a sandbox: it sees neither the server's files nor other jobs. "
                "All run as the server's user."
            )
        if self.users:
            return "Jobs run as the UNIX users of their owners; jobs of one owner can reach each other."
        return (
            "Jobs are not isolated: each can do whatever the user of this server can, "
            "such as read its token and change other jobs."
        )


def isolation_of(settings: Settings, home: Home) -> Isolation:
    """What the settings request. Raises IsolationError where this machine cannot do it: nothing is omitted silently."""
    users = JobUsers(dict(settings.job_users))
    try:
        users.check()
        return Isolation(
            users=_usable(users, home, settings),
            sandbox=_sandbox(settings, home) if settings.sandbox else None,
            cgroup=_cgroup(settings),
            limits=_limits(settings),
            no_new_privs=settings.no_new_privileges,
            private_tmp=settings.private_tmp,
            pass_env=settings.pass_env,
        )
    except (NoUserError, NoCgroupError) as error:
        raise IsolationError(str(error)) from error


def _usable(users: JobUsers, home: Home, settings: Settings) -> JobUsers:
    if users and os.geteuid() != 0:
        raise IsolationError("job_users needs a server that runs as root: only root can start processes of other users")
    if settings.sandbox and not users and os.geteuid() == 0:
        raise IsolationError(
            "a sandbox needs a server that does not run as root, or the setting job_users, such as "
            'REKINDLE_JOB_USERS=\'{"*": "nobody"}\': root can read most files of the system in a sandbox, too'
        )
    if users and _can_link_files_of_others():
        raise IsolationError(
            "job_users needs fs.protected_hardlinks = 1, without which a user can give any file of the server's disk a "
            "name in a run directory: sysctl -w fs.protected_hardlinks=1"
        )
    for name in set(users.names.values()):
        if "{" not in name and home.runs.exists() and not may_reach(UnixUser.named(name), home.runs):
            raise IsolationError(
                f"the UNIX user {name} cannot reach {home.runs}: choose a home whose parent directories are open to "
                "others (o+x), such as /var/lib/rekindle"
            )
    return users


def _can_link_files_of_others() -> bool:
    """False where the kernel does not show it."""
    try:
        return _PROTECTED_HARDLINKS.read_text().strip() == "0"
    except OSError:
        return False


def _sandbox(settings: Settings, home: Home) -> Sandbox:
    hidden = (*HIDDEN, os.path.realpath(home.root))
    socket = Path(os.path.realpath(settings.socket_path.parent))
    if not settings.job_users and not any(socket.is_relative_to(each) for each in hidden):
        raise IsolationError(
            f"the setting socket is {settings.socket_path}, to which a job in a sandbox could connect as the server's "
            f"own user: choose a path in the home or below one of {', '.join(HIDDEN)}"
        )
    program = find_program()
    if program is None or (lack := lack_of_sandbox(program)) is not None:
        lack = lack_of_sandbox(None) if program is None else lack
        raise IsolationError(f"the setting sandbox cannot be applied: {lack}")
    network = settings.sandbox_network == "host"
    return Sandbox(program, home, settings.sandbox_read, settings.sandbox_write, network=network)


def _cgroup(settings: Settings) -> CgroupParent | None:
    limits = CgroupLimits(settings.job_memory_bytes, settings.job_cpus, settings.job_processes)
    if settings.cgroup is None:
        if settings.job_memory_bytes is not None or settings.job_cpus is not None:
            raise IsolationError(
                "job_memory_bytes and job_cpus need the setting cgroup: only a cgroup can enforce them"
            )
        return None
    parent = CgroupParent(settings.cgroup, limits)
    parent.check()
    return parent


def _limits(settings: Settings) -> dict[str, int]:
    """RLIMIT_NPROC counts all processes of a user: it is used only where there is no cgroup."""
    processes = settings.job_processes if settings.cgroup is None else None
    wanted = {
        "RLIMIT_NOFILE": settings.job_open_files,
        "RLIMIT_FSIZE": settings.job_file_bytes,
        "RLIMIT_NPROC": processes,
    }
    return {name: value for name, value in wanted.items() if value is not None}


def _user_home(user: UnixUser | None) -> Path:
    return Path.home() if user is None else user.home
