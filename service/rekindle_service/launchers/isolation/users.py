"""As which UNIX user the jobs of a person run."""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

ANY_OWNER = "*"
OWN_NAME = "{owner}"
"""In the place of a user's name: the UNIX user that is called like the owner of the job."""


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
