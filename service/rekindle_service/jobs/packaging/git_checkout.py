"""One commit of a git repository in a directory, fetched by the system's git, which runs nothing that comes with it."""

import errno
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from rekindle.contract.environment import clean_environment
from rekindle_service.launch.isolation.rights import GitRights
from rekindle_service.submission import BusyError, FieldError, SubmissionError, raise_if_lacking, without_password

_TIMEOUT = 120  # seconds for all of one checkout
_MAX_CHECKOUTS = 4
_MAX_WAITING = 4
_MAX_WAIT_SECONDS = 10.0
_RUNNING = threading.BoundedSemaphore(_MAX_CHECKOUTS)
_ADMITTED = threading.BoundedSemaphore(_MAX_CHECKOUTS + _MAX_WAITING)
_MAX_BYTES = 1 << 30  # of one file that git writes; all that it fetches comes in one
_LIMITED = ("sh", "-c", f'ulimit -f {_MAX_BYTES >> 9} 2>/dev/null; exec "$@"', "sh")
"""Begins a command line: the server may not be able to limit a process of another user once it runs."""
_HOST = r"[A-Za-z0-9\[][^\s/@]*"  # begins with no dash, which ssh would take for an option
_URL = re.compile(rf"https://{_HOST}/\S+|ssh://([\w.-]+@)?{_HOST}/\S+|[\w.-]+@{_HOST}:\S+|file:///\S+", re.ASCII)
_REF = re.compile(r"[A-Za-z0-9_./+@][A-Za-z0-9_./+@-]*")
_SETTINGS = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "submodule.recurse=false", "gc.auto=0")


_OF_SERVER = GitRights()


def check_out(url: str, ref: str | None, directory: Path, rights: GitRights = _OF_SERVER) -> str:
    """Fetch one commit into the new ``directory`` and return its full id.

    Without submodules, history and hooks. ``ref`` is a branch, a tag or a full commit id; None: the default branch.
    git asks nothing: what needs a password has to be set up for the server's user. Raises SubmissionError
    and BusyError.
    """
    _check_names(url, ref)
    with _slot():
        git = _Git(url, time.monotonic() + _TIMEOUT, directory.parent, rights)
        git.run("init", "--quiet", "--template=", "--", str(directory))
        at = ("-C", str(directory))
        fetch = ("fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules")
        git.run(*at, *fetch, "--", url, ref or "HEAD")
        commit = git.run(*at, "rev-parse", "--verify", "FETCH_HEAD^{commit}").strip()
        git.run(*at, "checkout", "--quiet", "--detach", commit)
        return commit


@contextmanager
def _slot() -> Iterator[None]:
    """Occupy one of the checkouts that may run at once: a host that does not answer holds each for two minutes.

    Raises BusyError where none becomes free soon, or as many others as may are waiting already.
    """
    with ExitStack() as taken:
        for semaphore, seconds in ((_ADMITTED, 0.0), (_RUNNING, _MAX_WAIT_SECONDS)):
            if not semaphore.acquire(timeout=seconds):
                raise BusyError(f"{_MAX_CHECKOUTS} other submissions are being fetched from git")
            taken.callback(semaphore.release)
        yield


def _check_names(url: str, ref: str | None) -> None:
    if not _URL.fullmatch(url) or url.startswith("-"):
        hint = "such as https://host/team/repository.git, git@host:team/repository.git or file:///path"
        raise _rejection(
            "code.git", "must be an https, ssh or file URL without a password", without_password(url), hint
        )
    if ref is not None and not _REF.fullmatch(ref):
        raise _rejection("code.ref", "must be a branch, a tag or a full commit id", ref, "")


@dataclass(frozen=True, slots=True)
class _Git:
    """The git commands of one checkout, which has to be over at ``deadline`` (seconds of CLOCK_MONOTONIC)."""

    url: str
    deadline: float
    directory: Path  # where it may write
    rights: GitRights

    def run(self, *words: str) -> str:
        """The output of one command. Raises SubmissionError with what git says."""
        process = self._start(*words)
        try:
            output, stderr = process.communicate(timeout=max(self.deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired as error:
            rule = f"must be fetched within {_TIMEOUT} s"
            hint = "it was not: is the host reachable from the server?"
            raise _rejection("code.git", rule, self.url, hint) from error
        finally:
            _end(process)
        if process.returncode != 0:
            rule = "must be a repository and ref that git can fetch"
            raise _rejection("code.git", rule, self.url, stderr.strip()[-500:])
        return output

    def _start(self, *words: str) -> "subprocess.Popen[str]":
        uid, gid, groups = self.rights.user or (None, None, None)
        settings = [word for setting in _SETTINGS for word in ("-c", setting)]
        try:
            return subprocess.Popen(
                [*_LIMITED, *self.rights.command, _program(), *settings, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(self.rights.environment),
                cwd=self.directory,
                user=uid,
                group=gid,
                extra_groups=groups,
                start_new_session=True,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise_if_lacking(error)
            raise _rejection("code.git", "needs git on the server's machine", self.url, str(error)) from error


def _program() -> str:
    """Raises FileNotFoundError."""
    if (path := shutil.which("git")) is None:
        raise FileNotFoundError(errno.ENOENT, "not found", "git")
    return path


def _end(process: "subprocess.Popen[str]") -> None:
    """git's own children, too, which are in its session."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _environment(given: Mapping[str, str] | None) -> dict[str, str]:
    """Nothing that points git elsewhere, and nobody to ask for a password."""
    inherited = clean_environment(os.environ) if given is None else given
    kept = {name: value for name, value in inherited.items() if not name.startswith("GIT_")}
    return {
        **kept,
        "GIT_ALLOW_PROTOCOL": "https:ssh:file",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        "LC_ALL": "C.UTF-8",
    }


def _rejection(field: str, rule: str, value: str, hint: str) -> SubmissionError:
    return SubmissionError([FieldError(field, rule, value, hint)])
