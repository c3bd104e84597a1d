"""``python -I -S enter_sandbox.py``: changes from the server's rights to those of a job, then becomes the job's keeper.

It runs with the server's rights and none of the job's environment: a variable such as LD_PRELOAD would be the job's
code with these rights. What to do comes as JSON through standard input, since command lines can be read by everybody.
Standard library only: it is a file of its own, which imports nothing of this package.
"""

import ctypes
import json
import os
import resource
import stat
import sys
from typing import Any

_PR_SET_NO_NEW_PRIVS = 38
_CANNOT_ENTER = 126


def main(plan: dict[str, Any]) -> None:
    """The order matters: what needs the server's rights comes before they are given up."""
    os.umask(0o077)
    if plan["cgroup"] is not None:
        _write(plan["cgroup"], str(os.getpid()))
    for name, value in plan["limits"].items():
        _limit(getattr(resource, name), value)
    if plan["user"] is not None:
        uid, gid, groups = plan["user"]
        own(plan["run_dir"], uid, gid)
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    for directory in plan["directories"]:
        _ensure_private(directory)
    if plan["no_new_privs"]:
        _forbid_new_privileges()
    os.chdir(plan["cwd"])
    _become(plan["command"], plan["environment"], plan["bwrap"])


def _become(command: list[str], environment: dict[str, str], bwrap: list[str] | None) -> None:
    """The sandbox, too, starts without the job's environment, which it sets for the keeper only."""
    if bwrap is None:
        os.execve(command[0], command, environment)  # noqa: S606  # that is its purpose
    variables = [word for name, value in environment.items() for word in ("--setenv", name, value)]
    fd = os.memfd_create("arguments", 0)
    with os.fdopen(os.dup(fd), "wb") as file:
        file.write(b"".join(os.fsencode(word) + b"\0" for word in ("--clearenv", *variables)))
    os.lseek(fd, 0, os.SEEK_SET)
    os.set_inheritable(fd, True)
    words = [*bwrap, "--args", str(fd), "--", *command]
    os.execve(words[0], words, {"PATH": os.defpath, "LANG": "C.UTF-8"})  # noqa: S606  # likewise


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123  # pathlib is not needed, and takes time to import
        file.write(text)


def _limit(kind: int, value: int) -> None:
    """Lower a limit; one that is lower already stays."""
    hard = resource.getrlimit(kind)[1]
    allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(kind, (allowed, allowed))


def own(run_dir: str, uid: int, gid: int) -> None:
    """Give the run directory, which the server has made, to the job's user, once. Refuses another user's.

    No link is followed, and no file is given away that has another name elsewhere.
    """
    root = os.lstat(run_dir)
    if root.st_uid == uid:
        return
    if root.st_uid != os.getuid():
        raise PermissionError(f"{run_dir} belongs to user {root.st_uid}, and the job runs as user {uid}: {_OTHER_USER}")
    for parent, directories, files, fd in os.fwalk(run_dir, topdown=False):
        for name in (*directories, *files):
            status = os.stat(name, dir_fd=fd, follow_symlinks=False)
            if status.st_uid == uid:
                continue
            if status.st_uid != os.getuid() or (stat.S_ISREG(status.st_mode) and status.st_nlink > 1):
                raise PermissionError(f"{parent}/{name} is shared with another job or user: {_OTHER_USER}")
            os.chown(name, uid, gid, dir_fd=fd, follow_symlinks=False)
    os.chown(run_dir, uid, gid, follow_symlinks=False)


_OTHER_USER = "has the setting job_users been changed, or does it continue a job of somebody else? Submit it again"


def _ensure_private(directory: str) -> None:
    try:
        os.mkdir(directory, 0o700)  # noqa: PTH102  # see above
    except FileExistsError:
        status = os.lstat(directory)
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            raise PermissionError(f"{directory} is not a directory of the job's own user: remove it") from None


def _forbid_new_privileges() -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs cannot be set")


if __name__ == "__main__":
    given = json.loads(os.fdopen(os.dup(0), "rb").read())
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    try:
        main(given)
    except OSError as error:
        sys.stderr.write(f"The job cannot be started with its rights: {error}\n")
        sys.exit(_CANNOT_ENTER)
