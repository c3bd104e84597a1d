"""A real PostgreSQL of the test: a cluster in a temporary directory, on a UNIX socket, without a password."""

import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import psycopg
import pytest

_INSTALLED = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name))

needs_postgres = pytest.mark.skipif(not _INSTALLED, reason="PostgreSQL is not installed: apt-get install postgresql")

_USER = "rekindle"
_OPTIONS = "-c listen_addresses='' -c fsync=off -c max_connections=120 -c unix_socket_directories="


class PostgresCluster:
    """Belongs to the user ``postgres`` where root runs the tests, since PostgreSQL refuses to run as root."""

    def __init__(self, root: Path) -> None:
        self._root, self._data, self._sockets = root, root / "data", root / "s"
        self._numbers = itertools.count(1)
        self._as_user: list[str] = []
        self._sockets.mkdir()
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            for directory in (root, self._sockets):
                os.chown(directory, user.pw_uid, user.pw_gid)
            self._as_user = ["setpriv", "--reuid=postgres", f"--regid={user.pw_gid}", "--clear-groups"]
        self._run("initdb", "-D", self._data, "-A", "trust", "-U", _USER, "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        options = _OPTIONS + str(self._sockets)
        self._run("pg_ctl", "-D", self._data, "-w", "-t", "120", "-o", options, "-l", self._root / "log", "start")

    def stop(self, mode: str = "immediate") -> None:
        self._run("pg_ctl", "-D", self._data, "-w", "-m", mode, "stop")

    def create_database(self) -> str:
        """The name of a new, empty one."""
        name = f"test{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    @property
    def socket(self) -> Path:
        return self._sockets / ".s.PGSQL.5432"

    def url(self, database: str) -> str:
        return f"postgresql+psycopg://{_USER}@/{database}?host={self._sockets}"

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        with psycopg.connect(host=str(self._sockets), user=_USER, dbname=database, autocommit=True) as connection:
            cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    def _run(self, program: str, *arguments: object) -> None:
        command = [*self._as_user, str(_INSTALLED[-1] / program), *map(str, arguments)]
        ran = subprocess.run(command, cwd=self._root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        assert ran.returncode == 0, ran.stderr.decode()


@contextmanager
def postgres_cluster() -> Iterator[PostgresCluster]:
    """In a short path that another user may reach, which pytest's directories are not."""
    root = Path(tempfile.mkdtemp(prefix="rekindle-pg-"))
    try:
        with PostgresCluster(root) as cluster:
            yield cluster
    finally:
        shutil.rmtree(root, ignore_errors=True)
