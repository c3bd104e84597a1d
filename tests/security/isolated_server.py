"""A server whose jobs are isolated, on a machine where tests run as root from a directory that only root can enter."""

import os
import pwd
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.serve_process import ServeProcess
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings

ROOT = Path(__file__).parents[2]


def lack_of_root() -> str | None:
    """Why a test cannot make mount namespaces and processes of other users; None where it can."""
    if os.geteuid() != 0:
        return "needs root"
    done = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return None if done.returncode == 0 else "needs mount namespaces"


def lack_of_bubblewrap() -> str | None:
    return None if shutil.which("bwrap") else "needs bubblewrap (apt install bubblewrap)"


needs_root = pytest.mark.skipif(lack_of_root() is not None, reason=str(lack_of_root()))
needs_bubblewrap = pytest.mark.skipif(lack_of_bubblewrap() is not None, reason=str(lack_of_bubblewrap()))


def in_open_system(user: str | None = None) -> list[str]:
    """What a command is started with so that any user can reach this Python; as ``user``, where one is given.

    A mount namespace of its own: directories such as /root, closed to others, are replaced by open ones that have
    nothing but what Python and this repository need.
    """
    script = ["set -e"]
    for closed, inner in _closed(sorted({Path(sys.base_prefix), Path(sys.prefix), ROOT})).items():
        kept = [f"/mnt/{number}" for number in range(len(inner))]
        script += ["mount -t tmpfs tmpfs /mnt", "mkdir " + " ".join(kept)]
        script += [f"mount --bind {shlex.quote(str(path))} {keep}" for path, keep in zip(inner, kept, strict=True)]
        script += [f"mount -t tmpfs -o mode=755 tmpfs {closed}"]
        for path, keep in zip(inner, kept, strict=True):
            script += [f"mkdir -p {shlex.quote(str(path))}", f"mount --bind {keep} {shlex.quote(str(path))}"]
    become = f"setpriv --reuid {user} --regid {user} --init-groups" if user is not None else ""
    return [
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        "\n".join([*script, f'exec {become} "$@"']),
        "sh",
    ]


def _closed(paths: Sequence[Path]) -> dict[Path, list[Path]]:
    found: dict[Path, list[Path]] = {}
    for path in paths:
        for parent in reversed(path.parents):
            if not parent.stat().st_mode & 0o001:
                found.setdefault(parent, []).append(path)
                break
    return found


@contextmanager
def open_home(owner: int = 0) -> Iterator[Path]:
    """A home outside of pytest's directories, which are closed to other users."""
    with tempfile.TemporaryDirectory(prefix="rekindle-test-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        home = Path(name) / "home"
        home.mkdir(mode=0o700)
        os.chown(home, owner, owner)
        yield home


def isolated_server(home: Path, user: str | None = None, **settings: str) -> ServeProcess:
    environment = {f"REKINDLE_{name.upper()}": value for name, value in settings.items()}
    return ServeProcess(home, under=in_open_system(user), environment={"OF_THE_SERVER": "server's", **environment})


@contextmanager
def client_of(user: str | None, settings: dict[str, str]) -> Iterator[tuple[Path, ServeProcess, Client, int]]:
    """A home, its isolated server, a client of it, and the server's uid. Skips the test where a sandbox lacks bwrap."""
    if "sandbox" in settings and (lack := lack_of_bubblewrap()) is not None:
        pytest.skip(lack)
    uid = 0 if user is None else pwd.getpwnam(user).pw_uid
    with (
        open_home(uid) as home,
        isolated_server(home, user, **settings) as server,
        Client.from_home(Settings(home=home)) as client,
    ):
        yield home, server, client, uid
