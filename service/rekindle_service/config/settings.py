"""The settings of the server, which include those of the client."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, field_validator

from rekindle.contract.environment import SET_BY_REKINDLE
from rekindle.contract.job import HEALTHY_SECONDS, HOST_TIMEOUT, MIN_LOG_BYTES
from rekindle.contract.job_options import MAX_PRIORITY
from rekindle_service.config.client_settings import PREFIX, ClientSettings
from rekindle_service.config.notification_targets import NotificationTarget
from rekindle_service.submission import mirror_problem
from rekindle_service.suggestions import closest

Days = Annotated[float | None, Field(ge=0, le=36_500)]
SocketScope = Literal["read", "submit"]
Preemption = Literal["off", "own", "all"]
Priority = Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]

_GPU = re.compile(r"(cuda:)?\d+|(GPU|MIG)-[0-9a-f-]+")


def usable_cores() -> int:
    """The cores that this process may run on, which a container or ``taskset`` may have limited."""
    return len(os.sched_getaffinity(0))


class Quota(BaseModel, extra="forbid", frozen=True):
    """Limits of one owner; null is no limit."""

    slots: int | None = Field(None, ge=0)
    """Maximum number of slots held at once. Default: no limit."""
    queued: int | None = Field(None, ge=0)
    """Maximum number of jobs in the queue. Default: no limit."""


class PriorityCeilings(BaseModel, extra="forbid", frozen=True):
    """The highest priority that each person may give a job: that of their name, or else that of their scope."""

    submit: Priority = 100
    """Highest priority with the scope `submit`."""
    admin: Priority = 1000
    """Highest priority with the scope `admin`."""
    people: dict[str, Priority] = Field(default_factory=dict)
    """Highest priority by person."""

    def of(self, person: str, *, is_admin: bool) -> int:
        return self.people.get(person, self.admin if is_admin else self.submit)


class RetentionRules(BaseModel):
    """How long things are kept, in days, and how much space the jobs may take. None: for ever, and any."""

    keep_jobs_days: Days = None
    """Number of days after which finished jobs are deleted with all files. Default: never."""
    keep_snapshots_days: Days = None
    """Number of days after which a finished job keeps only its latest, best and pinned snapshots. Default: never."""
    keep_logs_days: Days = None
    """Number of days after which output and metrics of finished jobs are removed. Default: never."""
    keep_events_days: Days = None
    """Number of days after which events of finished and deleted jobs are removed. Default: never."""
    keep_audit_days: Days = None
    """Number of days after which entries of the audit log are removed. Default: never."""
    keep_bundles_days: Days = None
    """Number of days after which uploaded code that no job refers to is removed. Default: never."""
    owner_bytes: int | None = Field(None, ge=0, le=1 << 62)
    """Maximum number of bytes of the jobs of one person; above it, what finished jobs can spare is removed. Default: no
    limit."""
    jobs_bytes: int | None = Field(None, ge=0, le=1 << 62)
    """Maximum number of bytes of all jobs together; above it, what finished jobs can spare is removed. Default: no
    limit."""


class Settings(RetentionRules, ClientSettings, extra="forbid"):
    """``Settings(port=0)`` is how a flag is given; what is not given comes from the environment or the file.

    Raises pydantic's ValidationError for a value out of range or an unknown name, SettingsError for a file that is
    not TOML.
    """

    host: str = "127.0.0.1"
    """Address to listen on. Any other than loopback requires `allow_remote`."""
    allow_remote: bool = False
    """Listen on an address that other machines can reach: anyone with the token can run code here."""
    public_url: str | None = None
    """URL at which a reverse proxy on this machine serves this server, as in `https://train.example.org`: see
    deploy/README.md. Default: no proxy."""
    port: int = Field(8700, ge=0, le=65535)
    """TCP port to listen on; 0 takes any free one."""
    python: str | None = None
    """Python interpreter, by its absolute path, of jobs that name none and were not submitted from an environment with
    torch. Default: the one that runs the server."""
    cpu_slots: int = Field(default_factory=usable_cores, ge=0, le=1024)
    """Number of CPU ranks that may run at once; may exceed the cores. Default: the usable cores."""
    exclude_devices: str = ""
    """GPUs that no job gets, by index or UUID and separated by commas, as in `0,3`. Default: none."""
    affinity: Literal["none", "numa", "slots"] = "numa"
    """Cores that ranks run on: `numa`, those near their GPU; `slots`, in addition those of their CPU slot, where there
    are no more slots than cores; `none`, all."""
    private_jobs: bool = False
    """People read their own jobs only. Without it, everybody reads all jobs and changes their own."""
    request_rate: float = Field(200, ge=0)
    """Requests per second of each person, on average; 0 sets no limit. See docs/security.md."""
    socket_group: str | None = None
    """Group whose members may use the socket, each under the name of their account. Default: only the user of the
    server may."""
    socket_scope: SocketScope = "submit"
    """What members of `socket_group` may do: `read` or `submit`."""
    bundle_bytes: int = Field(200_000_000, ge=1)
    """Maximum size of an uploaded code archive in bytes."""
    spare_keepers: int = Field(2, ge=0, le=64)
    """Number of processes kept ready with torch imported, so that jobs start sooner; 0 keeps none."""
    spare_memory: int = Field(4 << 30, ge=0)
    """Free memory of the machine in bytes below which no process is kept ready."""
    quotas: dict[str, Quota] = Field(default_factory=dict)
    """Limits by owner, `*` for all others: `slots` held at once and `queued` jobs, as in
    `{"*": {"slots": 4, "queued": 100}}`. Default: no limits."""
    max_queued: int = Field(100_000, ge=1)
    """Maximum number of jobs in the queue."""
    fair_share_days: float = Field(7, gt=0, le=365)
    """Number of days after which the use of slots counts half in the order of the queue."""
    max_priority: PriorityCeilings = Field(default_factory=PriorityCeilings)
    """Highest priority that people may give their jobs, by scope and by person, as in
    `{"submit": 100, "people": {"ann": 500}}`. Default: 100 with the scope `submit`, 1000 with `admin`."""
    preemption: Preemption = "own"
    """Which running jobs of lower priority a waiting job stops; they resume later: `own`, those of its own owner;
    `all`, everybody's; `off`, none."""
    min_run_seconds: float = Field(60, ge=0)
    """Minimum number of seconds that a job runs before it is preempted or given other slots."""
    healthy_seconds: float = Field(HEALTHY_SECONDS, gt=0)
    """Number of seconds after which an attempt clears the count of failures, where its progress cannot be known."""
    host_timeout: float = Field(HOST_TIMEOUT, ge=15, le=3600)
    """Number of seconds without a heartbeat after which a node of a Slurm job counts as lost."""
    slurm_poll_seconds: float = Field(5, ge=0.2, le=600)
    """Number of seconds between two calls of `squeue`, each for all jobs together."""
    log_bytes: int | None = Field(1_000_000_000, ge=MIN_LOG_BYTES)
    """Maximum size of each log of a rank in bytes; the first eighth and the latest output are kept."""
    keep_bundles_days: Days = 7
    """Number of days after which uploaded code that no job refers to is removed."""
    mirror: str | None = None
    """URL for off-box copies of jobs that name none with `--mirror`. Where jobs are isolated, theirs must be below it.
    Default: no copies."""
    backup_hours: float = Field(24, ge=0)
    """Number of hours between two backups of the database into `backups` in the home; 0 makes none."""
    backups_kept: int = Field(7, ge=1, le=1000)
    """Number of scheduled backups of the database to keep."""
    job_users: dict[str, str] = Field(default_factory=dict)
    """UNIX users that jobs run as, by owner: `*` for all others, `{owner}` for the user of that name. Requires root:
    see docs/security.md. Default: the user of the server."""
    sandbox: bool = False
    """Run each job in a sandbox of bubblewrap: see docs/security.md."""
    sandbox_read: tuple[str, ...] = ()
    """Hidden paths that jobs in a sandbox may read; `~` is the home of the job's user. Default: none."""
    sandbox_write: tuple[str, ...] = ()
    """Paths that jobs in a sandbox may write to, in addition to their own. Default: none."""
    sandbox_network: Literal["host", "none"] = "host"
    """Network of jobs in a sandbox: `host`, that of the machine; `none`, only a loopback of their own."""
    pass_env: tuple[str, ...] = ()
    """Environment variables of the server that isolated jobs get in addition to the usual ones. Default: none."""
    private_tmp: bool = True
    """Give each job a TMPDIR of its own, which is removed at its end."""
    no_new_privileges: bool = False
    """Forbid `sudo` and other setuid programs in jobs; isolated jobs can never use them."""
    job_open_files: int | None = Field(None, ge=64)
    """Maximum number of files that one process of a job may have open. Default: that of the server."""
    job_file_bytes: int | None = Field(None, ge=1 << 20)
    """Maximum size in bytes of a file that a job writes. Default: no limit."""
    job_processes: int | None = Field(None, ge=16)
    """Maximum number of processes and threads per job; without `cgroup`, per UNIX user and not for root. Default: no
    limit."""
    job_memory_bytes: int | None = Field(None, ge=64 << 20)
    """Maximum memory per job in bytes; requires `cgroup`. Default: no limit."""
    job_cpus: float | None = Field(None, gt=0, le=4096)
    """Number of processor cores per job; requires `cgroup`. Default: no limit."""
    cgroup: Path | None = None
    """Directory of the cgroup (version 2) file system in which the server makes one per job. Default: no cgroups."""
    notify: tuple[NotificationTarget, ...] = Field((), repr=False)
    """Webhooks and commands that are notified of events: see docs/notifications.md. Default: none."""

    @field_validator("exclude_devices")
    @classmethod
    def _named(cls, devices: str) -> str:
        if wrong := [name for name in devices.split(",") if name.strip() and not _GPU.fullmatch(name.strip())]:
            raise ValueError(f"names GPUs by index or UUID, as in 0,3, and {', '.join(wrong)} is neither")
        return devices

    @field_validator("python")
    @classmethod
    def _absolute_path(cls, python: str | None) -> str | None:
        if python is not None and not os.path.isabs(python):  # noqa: PTH117  # else ~ would be looked for, too
            raise ValueError("is an absolute path, as in /opt/train/bin/python")
        return python

    @field_validator("public_url")
    @classmethod
    def _site(cls, url: str | None) -> str | None:
        parts = urlsplit(url or "")
        if url and (parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or "?" in url):
            raise ValueError("is a scheme and a host, as in https://train.example.org, without a path")
        return url.rstrip("/") if url else None

    @field_validator("mirror")
    @classmethod
    def _usable_mirror(cls, url: str | None) -> str | None:
        if url is not None and (wrong := mirror_problem(url)) is not None:
            raise ValueError(wrong.removeprefix("must be "))
        return url

    @field_validator("notify")
    @classmethod
    def _each_once(cls, notify: tuple[NotificationTarget, ...]) -> tuple[NotificationTarget, ...]:
        if len({target.key for target in notify}) < len(notify):
            raise ValueError("names a receiver twice: list all its events in one place")
        return notify

    @property
    def excluded_devices(self) -> list[str]:
        return [name.strip() for name in self.exclude_devices.split(",") if name.strip()]


def unknown_variables(environment: Iterable[str]) -> dict[str, list[str]]:
    """Variables with our prefix that neither are settings nor set by rekindle, each with the names most like it."""
    settings = [name.upper() for name in Settings.model_fields]
    known = {*(PREFIX + name for name in settings), *SET_BY_REKINDLE}
    return {
        name: [PREFIX + near for near in closest(name.removeprefix(PREFIX), settings)]
        for name in sorted(environment)
        if name.startswith(PREFIX) and name not in known
    }
