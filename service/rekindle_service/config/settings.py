"""Every setting of server and client: defaults < ``rekindle.toml`` in the home < ``REKINDLE_*`` < flags."""

import os
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError

from rekindle.contract.job import HEALTHY_SECONDS, HOST_TIMEOUT, MIN_LOG_BYTES
from rekindle_service.config.home import Home
from rekindle_service.config.notification_targets import NotificationTarget

Days = Annotated[float | None, Field(ge=0, le=36_500)]
SocketScope = Literal["read", "submit"]

_GPU = re.compile(r"(cuda:)?\d+|GPU-[0-9a-f-]+")


def default_home() -> Path:
    return Path.home() / ".rekindle"


def usable_cores() -> int:
    """The cores that this process may run on, which a container or ``taskset`` may have limited."""
    return len(os.sched_getaffinity(0))


class Quota(BaseModel):
    """Limits of one owner; null is no limit."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    slots: int | None = Field(None, ge=0)
    queued: int | None = Field(None, ge=0)


class Settings(BaseSettings):
    """``Settings(port=0)`` is how a flag is given; what is not given comes from the environment or the file.

    Raises pydantic's ValidationError for a value out of range or an unknown name, SettingsError for a file that is
    not TOML.
    """

    model_config = SettingsConfigDict(env_prefix="REKINDLE_", extra="forbid", frozen=True)

    home: Path = Field(default_factory=default_home, description="Directory of the database, the token and all runs.")
    host: str = Field("127.0.0.1", description="Address to listen on. Anything but loopback takes `allow_remote`.")
    allow_remote: bool = Field(
        False,
        description="Listen on an address that other machines reach, too: anyone with the token can run code here.",
    )
    public_url: str | None = Field(
        None,
        description="Where a reverse proxy on this machine serves this server, as in `https://train.example.org`: "
        "see deploy/README.md.",
    )
    port: int = Field(8700, ge=0, le=65535, description="Port to listen on; 0 takes any free one.")
    cpu_slots: int = Field(
        default_factory=usable_cores, ge=0, le=1024, description="CPU ranks that may run at once; may exceed the cores."
    )
    exclude_devices: str = Field(
        "", description="GPUs that no job gets, by index or UUID and separated by commas, as in `0,3`."
    )
    affinity: Literal["none", "numa", "slots"] = Field(
        "numa",
        description="Cores that ranks run on: `numa`, those near their GPU; `slots`, in addition those of their CPU "
        "slot, where there are no more slots than cores; `none`, all.",
    )
    private_jobs: bool = Field(
        False, description="People read their own jobs only. By default everybody reads all jobs and changes their own."
    )
    request_rate: float = Field(
        200, ge=0, description="Requests per second of each person, on average; 0: no limit. See docs/security.md."
    )
    socket: Path | None = Field(
        None, description="UNIX socket for users of this machine (default: `rekindle.sock` in the home)."
    )
    socket_group: str | None = Field(
        None, description="Group whose members may use the socket, each under the name of their account."
    )
    socket_scope: SocketScope = Field(
        "submit", description="What members of `socket_group` may do: `read` or `submit`."
    )
    bundle_bytes: int = Field(200_000_000, ge=1, description="Largest archive of code that may be uploaded, in bytes.")
    spare_keepers: int = Field(
        2, ge=0, le=64, description="Processes kept ready, with torch loaded, so that jobs start at once; 0: none."
    )
    spare_memory: int = Field(
        4 << 30, ge=0, description="Free memory of the machine, in bytes, below which no process is kept ready."
    )
    quotas: dict[str, Quota] = Field(
        default_factory=dict,
        description="Limits by owner, `*` for all others: `slots` held at once, `queued` jobs, as in "
        '`{"*": {"slots": 4, "queued": 100}}`.',
    )
    max_queued: int = Field(100_000, ge=1, description="Jobs that may wait in the queue.")
    fair_share_days: float = Field(
        7, gt=0, le=365, description="Days after which the use of slots counts half in the order of the queue."
    )
    preemption: bool = Field(True, description="Jobs of higher priority take the slots of running ones, which resume.")
    min_run_seconds: float = Field(
        60, ge=0, description="Seconds that a job runs at least before it is preempted or given other slots."
    )
    healthy_seconds: float = Field(
        HEALTHY_SECONDS,
        gt=0,
        description="Where progress cannot be known, an attempt that ran this long clears the count of failures.",
    )
    host_timeout: float = Field(
        HOST_TIMEOUT,
        ge=5,
        le=3600,
        description="Seconds after which a node of a Slurm job counts as lost when nothing is heard of it.",
    )
    slurm_poll_seconds: float = Field(
        5, ge=0.2, le=600, description="Seconds between two calls of `squeue`, each for all jobs together."
    )
    log_bytes: int | None = Field(
        1_000_000_000,
        ge=MIN_LOG_BYTES,
        description="Space that each log of a rank may take; the first eighth and the latest output are kept.",
    )
    keep_jobs_days: Days = Field(None, description="Delete finished jobs with all files after this number of days.")
    keep_snapshots_days: Days = Field(
        None, description="Days after which a finished job keeps only its latest, best and pinned snapshots."
    )
    keep_logs_days: Days = Field(None, description="Remove output and metrics of finished jobs after this many days.")
    keep_events_days: Days = Field(None, description="Remove events of finished and deleted jobs after this many days.")
    keep_audit_days: Days = Field(None, description="Remove entries of the audit log after this number of days.")
    keep_bundles_days: Days = Field(7, description="Remove uploaded code that no job refers to, after this many days.")
    owner_bytes: int | None = Field(
        None, ge=0, description="Space for the jobs of one person; what finished jobs can spare is removed above it."
    )
    jobs_bytes: int | None = Field(None, ge=0, description="Space for all jobs together, as `owner_bytes`.")
    backup_hours: float = Field(
        24, ge=0, description="Hours between two backups of the database in the home, in `backups`; 0 makes none."
    )
    backups_kept: int = Field(7, ge=1, le=1000, description="Scheduled backups of the database that are kept.")
    database: SecretStr | None = Field(
        None,
        description="PostgreSQL in place of the SQLite file in the home, as in `postgresql+psycopg://user@host/name`: "
        "see docs/operations.md.",
    )
    job_users: dict[str, str] = Field(
        default_factory=dict,
        description="UNIX users that jobs run as, by owner: `*` for all others, `{owner}` for the user of that name. "
        "Needs root; see docs/security.md.",
    )
    sandbox: bool = Field(False, description="Run each job in a sandbox of bubblewrap; see docs/security.md.")
    sandbox_read: tuple[str, ...] = Field(
        (), description="Hidden paths that jobs in a sandbox may read; `~` is the home of the job's user."
    )
    sandbox_write: tuple[str, ...] = Field((), description="Paths that jobs in a sandbox may write to.")
    sandbox_network: Literal["host", "none"] = Field(
        "host", description="`none`: jobs in a sandbox have no network but a loopback of their own."
    )
    pass_env: tuple[str, ...] = Field(
        (), description="Variables of the server that isolated jobs get in addition to the usual ones."
    )
    private_tmp: bool = Field(True, description="Give each job a TMPDIR of its own, which is removed at its end.")
    no_new_privileges: bool = Field(
        False, description="Forbid `sudo` and other setuid programs in jobs; isolated jobs can never use them."
    )
    job_open_files: int | None = Field(None, ge=64, description="Files that one process of a job may have open.")
    job_file_bytes: int | None = Field(None, ge=1 << 20, description="Largest file that a job may write, in bytes.")
    job_processes: int | None = Field(
        None, ge=16, description="Processes and threads per job; without `cgroup`, per UNIX user and not for root."
    )
    job_memory_bytes: int | None = Field(None, ge=64 << 20, description="Memory per job; needs `cgroup`.")
    job_cpus: float | None = Field(None, gt=0, le=4096, description="Processor cores per job; needs `cgroup`.")
    cgroup: Path | None = Field(
        None, description="Directory of the cgroup (version 2) file system in which the server makes one per job."
    )
    notify: tuple[NotificationTarget, ...] = Field(
        (), repr=False, description="Webhooks and commands that are notified of events: see docs/notifications.md."
    )
    url: str | None = Field(None, description="For the client: the server to talk to instead of the one in the home.")
    token: str | None = Field(None, repr=False, description="For the client: the token that goes with the url.")
    token_file: Path | None = Field(None, description="For the client: file with that token, instead of `token`.")

    @field_validator("home")
    @classmethod
    def _absolute(cls, home: Path) -> Path:
        return home.expanduser().absolute()

    @field_validator("exclude_devices")
    @classmethod
    def _named(cls, devices: str) -> str:
        if wrong := [name for name in devices.split(",") if name.strip() and not _GPU.fullmatch(name.strip())]:
            raise ValueError(f"names GPUs by index or UUID, as in 0,3, and {', '.join(wrong)} is neither")
        return devices

    @field_validator("public_url")
    @classmethod
    def _site(cls, url: str | None) -> str | None:
        parts = urlsplit(url or "")
        if url and (parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or "?" in url):
            raise ValueError("is a scheme and a host, as in https://train.example.org, without a path")
        return url.rstrip("/") if url else None

    @field_validator("notify")
    @classmethod
    def _each_once(cls, notify: tuple[NotificationTarget, ...]) -> tuple[NotificationTarget, ...]:
        if len({target.key for target in notify}) < len(notify):
            raise ValueError("names a receiver twice: list all its events in one place")
        return notify

    @property
    def excluded_devices(self) -> list[str]:
        return [name.strip() for name in self.exclude_devices.split(",") if name.strip()]

    @property
    def socket_path(self) -> Path:
        return self.socket or self.home_dir.socket

    @property
    def home_dir(self) -> Home:
        return Home(self.home)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, HomeFile(settings_cls)


class HomeFile(PydanticBaseSettingsSource):
    """``rekindle.toml`` in the home that flags and environment have chosen; it cannot choose another home itself."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        return self().get(field_name), field_name, False

    def __call__(self) -> dict[str, Any]:
        path = Path(self.current_state.get("home", default_home())).expanduser() / "rekindle.toml"
        try:
            values = tomllib.loads(path.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError) as error:
            raise SettingsError(f"{path} must be readable TOML: {error}") from error
        if "home" in values:
            raise SettingsError(f"{path} cannot set home: it is looked for in the home; use REKINDLE_HOME or --home")
        return values
