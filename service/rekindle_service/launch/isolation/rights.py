"""Files that a person names at submission are read with the rights of the user that the job runs as."""

import ctypes
import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.environment import clean_environment
from rekindle_service.config.home import Home
from rekindle_service.launch.isolation.enter_sandbox import own
from rekindle_service.launch.isolation.job_isolation import Isolation, NoUserError, UnixUser
from rekindle_service.submission import FieldError, Submission, SubmissionError

_SETGROUPS = {"x86_64": 116, "aarch64": 159}
"""Numbers of the system call, which changes one thread; ``os.setgroups`` changes all."""


@dataclass(frozen=True, slots=True)
class GitRights:
    """Rights with which git runs; without arguments, those of the server.

    A repository of this machine may have links to whatever git can read, and git quotes what it cannot parse.
    """

    command: Sequence[str] = ()  # that starts git
    environment: Mapping[str, str] | None = None  # None: the server's
    user: tuple[int, int, Sequence[int]] | None = None  # uid, gid and other groups


@dataclass(frozen=True, slots=True)
class SubmitRights:
    """Permissions for reading a submission's files."""

    isolation: Isolation
    home: Home

    @contextmanager
    def reading(self, submission: Submission) -> Iterator[None]:
        """Take the rights of the job's user while its submission is validated. Raises SubmissionError."""
        user = self._user(submission)
        if submission.origin is None and submission.code_dir is not None:
            self.check_code(submission.code_dir)
        with _acting_as(None if submission.is_fetched_by_server else user):
            yield

    def check_code(self, code: Path) -> None:
        """Refuse a directory of the server's home: before ``code`` is read, and again for where it leads."""
        if self.isolation.hides_the_server and self._is_in_home(code):
            hint = "submit the directory that it was copied from"
            raise SubmissionError([FieldError("code.path", "must not be in the server's home", str(code), hint)])

    def git(self, submission: Submission, directory: Path) -> GitRights:
        """Say with what rights git fetches into ``directory``: it reads no more of this machine than the job could.

        ``directory`` then belongs to the job's user. Raises SubmissionError and OSError.
        """
        if submission.origin is None or not submission.origin.is_local or not self.isolation.hides_the_server:
            return GitRights()
        user = self._user(submission)
        environment = self.isolation.inherited(clean_environment(os.environ), user)
        if user is not None:
            own(str(directory), user.uid, user.gid)
            return GitRights(environment=environment, user=(user.uid, user.gid, user.groups))
        command = [] if self.isolation.sandbox is None else self.isolation.sandbox.without_home(directory)
        return GitRights(command, environment)

    @contextmanager
    def building(self, submission: Submission, directory: Path) -> Iterator[None]:
        """Take the rights of the job's user, who owns the new run directory while files are copied there.

        What a bundle or a commit has brought there before is given to that user. Raises SubmissionError and OSError.
        """
        user = self._user(submission)
        if user is None:
            yield
            return
        own(str(directory), user.uid, user.gid)
        try:
            with _acting_as(user):
                yield
        finally:  # closed to the user until the job starts
            os.chown(directory, os.geteuid(), os.getegid())

    def _is_in_home(self, path: Path) -> bool:
        return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self.home.root))

    def _user(self, submission: Submission) -> UnixUser | None:
        try:
            return self.isolation.users.of(submission.owner)
        except NoUserError as error:
            raise SubmissionError([FieldError("owner", str(error), submission.owner)]) from error


@contextmanager
def _acting_as(user: UnixUser | None) -> Iterator[None]:
    """Accesses of this thread to files have the rights of ``user``. Raises OSError."""
    if user is None:
        yield
        return
    groups, uid, gid = os.getgroups(), os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    _set_groups(libc, [user.gid, *user.groups])
    try:
        libc.setfsgid(user.gid)
        libc.setfsuid(user.uid)
        if libc.setfsuid(-1) != user.uid:  # an invalid id changes nothing, and returns the one in force
            raise PermissionError(f"cannot act as the user {user.name}")
        yield
    finally:
        libc.setfsuid(uid)
        libc.setfsgid(gid)
        _set_groups(libc, groups)


def _set_groups(libc: ctypes.CDLL, groups: list[int]) -> None:
    number = _SETGROUPS.get(platform.machine())
    if number is None:
        raise PermissionError(f"job_users is not supported on a processor of the type {platform.machine()}")
    array = (ctypes.c_uint32 * len(groups))(*groups)
    if libc.syscall(number, len(groups), array) != 0:
        raise OSError(ctypes.get_errno(), "the groups of a thread cannot be changed")
