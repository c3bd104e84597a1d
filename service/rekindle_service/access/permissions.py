"""What a person may do: decided here for every route, by scope and by the owner of a job."""

import re
from dataclasses import dataclass, field
from enum import StrEnum

from rekindle_service.config.settings import PriorityCeilings

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

_READS_BY_POST = re.compile(r"/logout|/api/v1/jobs/[^/]+/ranks/[^/]+/stack")
"""Paths that need no more than the permission to read, although their method is POST."""

PERSON = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}")
"""Names of people: those of UNIX users and mail addresses among them."""


class Scope(StrEnum):
    """What a token allows; each scope includes the ones before it."""

    READ = "read"
    """Everything that changes nothing."""
    SUBMIT = "submit"
    """Submit jobs, and change one's own."""
    ADMIN = "admin"
    """Read and change everybody's jobs, manage tokens, read the audit log."""

    def includes(self, other: "Scope") -> bool:
        order = list(Scope)
        return order.index(self) >= order.index(other)


class Via(StrEnum):
    """How a person has proved who they are."""

    TOKEN = "token"  # noqa: S105 the word, not a secret
    BROWSER = "browser"
    SOCKET = "socket"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sends a request."""

    person: str
    scope: Scope
    via: Via
    token_digest: str | None = None  # None: a user of this machine, who has connected to the UNIX socket
    token_id: str | None = None  # None also for the home's token
    session_digest: str | None = None
    expires_at: float | None = None  # of the token, seconds since the epoch


@dataclass(frozen=True, slots=True)
class Permissions:
    """The rules, with the settings that change them."""

    private_jobs: bool = False
    ceilings: PriorityCeilings = field(default_factory=PriorityCeilings)

    def max_priority(self, identity: Identity) -> int:
        """The highest priority that the identity may give a job."""
        return self.ceilings.of(identity.person, is_admin=identity.scope.includes(Scope.ADMIN))

    def may_read(self, identity: Identity, owner: str | None) -> bool:
        """Whether the identity may read a job, or another thing of ``owner``."""
        return self.readable_by(identity) in (None, owner)

    def readable_by(self, identity: Identity) -> str | None:
        """The one owner whose things the identity may read; None: those of everybody."""
        everybody = not self.private_jobs or identity.scope.includes(Scope.ADMIN)
        return None if everybody else identity.person

    @staticmethod
    def changeable_by(identity: Identity) -> str | None:
        """The one owner whose jobs the identity may change, "" for none; None: those of everybody."""
        if identity.scope.includes(Scope.ADMIN):
            return None
        return identity.person if identity.scope.includes(Scope.SUBMIT) else ""

    @staticmethod
    def may_change(identity: Identity, owner: str | None) -> bool:
        return Permissions.changeable_by(identity) in (None, owner)


def changes_something(method: str, path: str) -> bool:
    """Whether a request needs more than the permission to read; unknown methods and paths do."""
    return method not in SAFE_METHODS and _READS_BY_POST.fullmatch(path) is None
