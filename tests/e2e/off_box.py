"""Places off the box for tests: a path, servers of S3 and of Google's protocol, sshd; the network can be cut."""

import os
import select
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from e2e.waiting import until
from free_port import free_port

_KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}


class Link:
    """A TCP port that leads to another one, unless it is cut: then every connection through it is reset."""

    def __init__(self, target: int) -> None:
        self._target, self._cut, self._pairs = target, threading.Event(), set[socket.socket]()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        self._cut.set()
        for each in list(self._pairs):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        self._cut.clear()

    def close(self) -> None:
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            if self._cut.is_set():
                near.close()
                continue
            far = socket.create_connection(("127.0.0.1", self._target))
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs |= {near, far}
            threading.Thread(target=self._copy, args=(near, far), daemon=True).start()

    def _copy(self, near: socket.socket, far: socket.socket) -> None:
        other = {near: far, far: near}
        with near, far, suppress(OSError):
            while True:
                for each in select.select([near, far], [], [])[0]:
                    if not (data := each.recv(1 << 16)):
                        return
                    other[each].sendall(data)
        self._pairs -= {near, far}


@dataclass
class Place:
    """``url`` and ``environment`` lead there over ``link``; ``direct`` ones lead there in any case.

    ``admit``: whether the server accepts the credentials from now on.
    """

    url: str
    environment: Mapping[str, str] = field(default_factory=dict)
    link: Link | None = None
    path: Path | None = None
    direct: str = ""
    direct_environment: Mapping[str, str] = field(default_factory=dict)
    admit: Callable[[bool], None] = lambda _admitted: None

    def cut(self) -> None:
        if self.link is not None:
            self.link.cut()
        elif self.path is not None:
            self.path.rename(self.path.with_suffix(".away"))

    def mend(self) -> None:
        if self.link is not None:
            self.link.mend()
        elif self.path is not None:
            self.path.with_suffix(".away").rename(self.path)


@contextmanager
def place(kind: str, directory: Path) -> Iterator[Place]:
    with {"path": _path, "s3": _s3, "gs": _gs, "sftp": _sftp}[kind](directory) as found:
        yield found


@contextmanager
def _path(directory: Path) -> Iterator[Place]:
    path = directory / "off"
    path.mkdir()
    yield Place(str(path), path=path, direct=str(path))


@contextmanager
def _s3(directory: Path) -> Iterator[Place]:
    pytest.importorskip("moto.server", reason="no moto, which is the S3 server")
    s3fs = pytest.importorskip("s3fs")
    with _server("moto.server", "-H", "127.0.0.1", "-p", log=directory / "s3.log") as (port, link):
        url, place = f"http://127.0.0.1:{port}", "s3://bucket/runs"
        s3fs.S3FileSystem(key="key", secret="secret", endpoint_url=url).mkdir("bucket")
        over = {**_KEYS, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{link.port}", "AWS_MAX_ATTEMPTS": "1"}
        direct = {**_KEYS, "AWS_ENDPOINT_URL": url}

        def admit(admitted: bool) -> None:
            """moto knows no key: it accepts any, up to a number of requests."""
            httpx2.post(f"{url}/moto-api/reset-auth", content=b"inf" if admitted else b"0").raise_for_status()

        yield Place(place, over, link, direct=place, direct_environment=direct, admit=admit)


@contextmanager
def _gs(directory: Path) -> Iterator[Place]:
    pytest.importorskip("gcp_storage_emulator", reason="no gcp-storage-emulator")
    pytest.importorskip("gcsfs")
    command = ("gcp_storage_emulator", "start", "--in-memory", "--default-bucket", "bucket", "--port")
    with _server(*command, log=directory / "gs.log") as (port, link):
        own = {"NO_GCE_CHECK": "true", "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false"}
        over, direct = ({**own, "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{each}"} for each in (link.port, port))
        yield Place("gs://bucket/runs", over, link, direct="gs://bucket/runs", direct_environment=direct)


@contextmanager
def _server(*module: str, log: Path) -> Iterator[tuple[int, Link]]:
    """A module that serves at a port, its last argument, and a link to it."""
    port = free_port()
    with log.open("wb") as output:
        command = [sys.executable, "-m", *module, str(port)]
        server = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **_KEYS})
    link = Link(port)
    try:
        until(lambda: _answers(port), f"{module[0]} answers")
        yield port, link
    finally:
        link.close()
        server.kill()
        server.wait()


@contextmanager
def _sftp(directory: Path) -> Iterator[Place]:
    """sshd of the system, or that of ``SSHD`` with its libraries; as root it needs its user, made in a namespace."""
    pytest.importorskip("paramiko")
    sshd = os.environ.get("SSHD") or shutil.which("sshd") or "/usr/sbin/sshd"
    if not Path(sshd).exists():
        pytest.skip("no sshd")
    home, port, target = directory / "ssh", free_port(), directory / "off"
    (home / ".ssh").mkdir(parents=True)
    target.mkdir()
    for key in (home / ".ssh/id_ed25519", home / "host"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    shutil.copy(home / ".ssh/id_ed25519.pub", home / "authorized")
    (home / "passwd").write_text(Path("/etc/passwd").read_text() + "sshd:x:998:65534::/run/sshd:/usr/sbin/nologin\n")
    options = {
        "Port": port, "ListenAddress": "127.0.0.1", "HostKey": home / "host", "UsePAM": "no", "StrictModes": "no",
        "AuthorizedKeysFile": home / "authorized", "PermitRootLogin": "prohibit-password", "PidFile": "none",
        "Subsystem": "sftp internal-sftp", "MaxStartups": "100",
    }  # fmt: skip
    (home / "config").write_text("".join(f"{name} {value}\n" for name, value in options.items()))
    start = f'mkdir -p /run/sshd; mount --bind {home}/passwd /etc/passwd; exec "$0" -D -e -f {home}/config'
    with (home / "log").open("wb") as log:
        server = subprocess.Popen(["unshare", "--mount", "sh", "-c", start, sshd], stdout=log, stderr=log)
    link = None
    try:
        until(lambda: _answers(port) or server.poll() is not None, "sshd answers")
        assert server.poll() is None, (home / "log").read_text()
        link = Link(port)
        public = (home / "host.pub").read_text()
        lines = [f"[127.0.0.1]:{each} {public}" for each in (port, link.port)]
        (home / ".ssh/known_hosts").write_text("".join(lines))
        urls = [f"sftp://root@127.0.0.1:{each}{target}" for each in (link.port, port)]
        own = {"HOME": str(home)}

        def admit(admitted: bool) -> None:
            """A session that is open stays so: it ends."""
            (home / "authorized").chmod(0o600)
            (home / "authorized").write_text((home / ".ssh/id_ed25519.pub").read_text() if admitted else "")
            link.cut()
            link.mend()

        yield Place(urls[0], own, link, direct=urls[1], direct_environment=own, admit=admit)
    finally:
        if link is not None:
            link.close()
        server.kill()
        server.wait()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
