"""The notification channels in the settings, and the events that each gets."""

import hashlib
import json
from enum import StrEnum
from typing import Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, SecretStr, field_validator, model_validator

_MIN_SECRET = 16


class EventType(StrEnum):
    """The events of a job that a channel can subscribe to."""

    SUBMITTED = "submitted"  # the job was submitted
    STARTED = "started"  # every rank of the first attempt of a run runs
    ATTEMPT_FAILED = "attempt_failed"  # an attempt has failed, and another follows
    RECOVERED = "recovered"  # every rank of the attempt after a failure runs
    SUCCEEDED = "succeeded"  # every rank has ended with success
    FAILED = "failed"  # the job has failed: no further attempt follows
    CANCELLED = "cancelled"  # a person has cancelled the job
    DRAINED = "drained"  # the job is back in the queue, drained or preempted
    STALLED = "stalled"  # no progress for a while, long before that counts as a hang
    PREEMPTED = "preempted"  # a job of higher priority, which the reason names with its owner, gets the job's slots
    STRAGGLER = "straggler"  # the other ranks wait for one rank
    FAULT_INJECTED = "fault_injected"  # on request, by `rekindle chaos` or the page
    SNAPSHOT_SKIPPED = "snapshot_skipped"  # a damaged or missing snapshot, for another one
    MIRROR_FAILED = "mirror_failed"  # nothing is copied off the box any more, for the reason given
    TEST = "test"  # on request, by `rekindle doctor --notify`; each channel gets it


class NotificationTarget(BaseModel, extra="forbid", frozen=True):
    """One table ``[[notify]]``: a webhook (``url`` and ``secret``) or a ``command``, and the events that it gets."""

    url: str | None = None
    format: Literal["json", "slack", "discord"] = "json"
    """What a webhook gets: the signed payload, or a message as Slack or Discord takes it, which needs no secret."""
    secret: SecretStr | None = None
    owner: str | None = Field(None, min_length=1)
    """Only events of jobs of this person."""
    command: tuple[str, ...] | None = None
    events: tuple[EventType, ...] = (
        EventType.ATTEMPT_FAILED,
        EventType.SUCCEEDED,
        EventType.FAILED,
        EventType.PREEMPTED,
        EventType.DRAINED,
    )
    time_limit: float = Field(10, gt=0, le=600)
    """Number of seconds for one try."""

    @field_validator("url")
    @classmethod
    def _has_host(cls, url: str | None) -> str | None:
        if url is not None and (urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname):
            raise ValueError("must begin with https:// (or http://) and name a host")
        return url

    @field_validator("command")
    @classmethod
    def _is_program(cls, command: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if command is not None and not (command and command[0].startswith("/")):
            raise ValueError("must be a list that begins with the absolute path of a program")
        return command

    @model_validator(mode="after")
    def _is_of_one_kind(self) -> Self:
        if (self.url is None) == (self.command is None):
            raise ValueError("exactly one of url and command must be given")
        if self.url is None and self.format != "json":
            raise ValueError(f"format {self.format!r} is that of a webhook: give its url")
        is_signed = self.url is not None and (self.format == "json" or self.secret is not None)
        if is_signed and (self.secret is None or len(self.secret.get_secret_value()) < _MIN_SECRET):
            raise ValueError(f"a url needs a secret of at least {_MIN_SECRET} characters, which signs what is sent")
        return self

    @property
    def label(self) -> str:
        """For the server's log: the rest of a webhook's URL is often a secret itself."""
        return (self.command or [""])[0] if self.url is None else str(urlsplit(self.url).hostname)

    @property
    def key(self) -> str:
        """The same as long as it is the same channel, whatever its events; reveals no secret."""
        identity = json.dumps([self.url, self.command, *([] if self.owner is None else [self.owner])])
        return hashlib.sha256(identity.encode()).hexdigest()[:16]
