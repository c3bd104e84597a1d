"""From what jobs are kept apart, and what this machine could do about it."""

import os
from pathlib import Path

from rekindle_service.cli.checks.finding import Finding, ok, problem, warning
from rekindle_service.config.settings import Settings
from rekindle_service.launchers.isolation.policy import IsolationError, isolation_of
from rekindle_service.launchers.isolation.sandbox import find_program, lack_of_sandbox

_CGROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_ADVICE = "Several people, or code that you do not trust? See docs/security.md for job_users and sandbox."


def isolation(settings: Settings) -> list[Finding]:
    """What the settings ask for, then each kind of isolation that there is."""
    return [configured(settings), job_users(os.geteuid()), sandbox(lack_of_sandbox(find_program())), cgroup()]


def configured(settings: Settings) -> Finding:
    """A server of these settings would not start where they cannot be applied."""
    try:
        found = isolation_of(settings, settings.home_dir)
    except (IsolationError, OSError) as error:
        return problem("isolation", str(error), "Change the setting, or what it needs; the server does not start.")
    if os.geteuid() == 0 and not found.users:
        return warning("isolation", f"{found.describe()} Here that is root.", "Do not serve as root, or set job_users.")
    return ok("isolation", found.describe() if found.hides_the_server else f"{found.describe()} {_ADVICE}")


def job_users(uid: int) -> Finding:
    if uid != 0:
        return ok("job users", "not possible: only a server that runs as root starts jobs as other users")
    return ok("job users", "possible: the setting job_users lets the jobs of each owner run as a user of their own")


def sandbox(lack: str | None) -> Finding:
    """``lack``: why none can be made."""
    return ok("sandbox", "possible: bubblewrap works" if lack is None else f"not possible: {lack}")


def cgroup(roots: tuple[Path, ...] = _CGROUPS) -> Finding:
    """Which limits a cgroup of version 2 could enforce."""
    root = next((each for each in roots if (each / "cgroup.controllers").exists()), None)
    if root is None:
        return ok("cgroup", "not possible: there is no cgroup file system of version 2")
    found = set((root / "cgroup.controllers").read_text().split()) & {"memory", "cpu", "pids"}
    if not found:
        return ok("cgroup", f"{root} has none of the controllers memory, cpu and pids: it can only end a whole job")
    return ok("cgroup", f"{root} can limit {', '.join(sorted(found))}, in a directory that this user may write to")
