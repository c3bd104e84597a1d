"""One commit of a git repository in a directory, fetched by the system's git, which runs nothing that comes with it."""

import os
import re
import resource
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

from rekindle.contract.environment import clean_environment
from rekindle_service.jobs.secrets import without_password
from rekindle_service.jobs.submission import FieldError, SubmissionError

_TIMEOUT = 120
_MAX_BYTES = 1 << 30  # of one file that git writes; all that it fetches comes in one
_HOST = r"[A-Za-z0-9\[][^\s/@]*"  # begins with no dash, which ssh would take for an option
_URL = re.compile(rf"https://{_HOST}/\S+|ssh://([\w.-]+@)?{_HOST}/\S+|[\w.-]+@{_HOST}:\S+|file:///\S+", re.ASCII)
_REF = re.compile(r"[A-Za-z0-9_./+@][A-Za-z0-9_./+@-]*")
_SETTINGS = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "submodule.recurse=false", "gc.auto=0")


def check_out(url: str, ref: str | None, directory: Path) -> str:
    """Fetch one commit into the new ``directory`` and return its full id.

    Without submodules, history and hooks. ``ref`` is a branch, a tag or a full commit id; None: the default branch.
    git asks nothing: what needs a password has to be set up for the server's user. Raises SubmissionError.
    """
    _check_names(url, ref)
    _git(url, "init", "--quiet", "--template=", "--", str(directory))
    at = ("-C", str(directory))
    _git(url, *at, "fetch", "--quiet", "--depth=1", "--no-tags", "--no-recurse-submodules", "--", url, ref or "HEAD")
    commit = _git(url, *at, "rev-parse", "--verify", "FETCH_HEAD^{commit}").strip()
    _git(url, *at, "checkout", "--quiet", "--detach", commit)
    return commit


def _check_names(url: str, ref: str | None) -> None:
    if not _URL.fullmatch(url) or url.startswith("-"):
        hint = "such as https://host/team/repository.git, git@host:team/repository.git or file:///path"
        raise _rejection(
            "code.git", "must be an https, ssh or file URL without a password", without_password(url), hint
        )
    if ref is not None and not _REF.fullmatch(ref):
        raise _rejection("code.ref", "must be a branch, a tag or a full commit id", ref, "")


def _git(url: str, *words: str) -> str:
    """Its output. Raises SubmissionError with what git says."""
    try:
        process = subprocess.Popen(
            ["git", *(word for setting in _SETTINGS for word in ("-c", setting)), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            start_new_session=True,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise _rejection("code.git", "needs git on the server's machine", url, str(error)) from error
    with suppress(ProcessLookupError):
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (_MAX_BYTES, _MAX_BYTES))
    try:
        output, stderr = process.communicate(timeout=_TIMEOUT)
    except subprocess.TimeoutExpired as error:
        rule = f"must be fetched within {_TIMEOUT} s"
        raise _rejection("code.git", rule, url, "it was not: is the host reachable from the server?") from error
    finally:
        _end(process)
    if process.returncode != 0:
        raise _rejection("code.git", "must be a repository and ref that git can fetch", url, stderr.strip()[-500:])
    return output


def _end(process: "subprocess.Popen[str]") -> None:
    """git's own children, too, which are in its session."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _environment() -> dict[str, str]:
    """Nothing that points git elsewhere, and nobody to ask for a password."""
    kept = {name: value for name, value in clean_environment(os.environ).items() if not name.startswith("GIT_")}
    return {
        **kept,
        "GIT_ALLOW_PROTOCOL": "https:ssh:file",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_SSH_COMMAND": "ssh -oBatchMode=yes",
        "LC_ALL": "C.UTF-8",
    }


def _rejection(field: str, rule: str, value: str, hint: str) -> SubmissionError:
    return SubmissionError([FieldError(field, rule, value, hint)])
