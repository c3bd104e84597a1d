"""The server as ``deploy/`` installs it: behind a real nginx with TLS, and under a real systemd."""

import http.client
import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from doc_pages import ROOT
from e2e.serve_process import ServeProcess
from e2e.waiting import until
from free_port import free_port
from rekindle.contract.locks import lock_holder
from rekindle.contract.run_dir.paths import RunDir
from rest_api import RestApi

DEPLOY = ROOT / "deploy"
NAME = "train.example.org"

# --- nginx


class Site:
    """What a browser elsewhere sees of a server behind nginx."""

    def __init__(self, port: int, token: str, certificate: Path) -> None:
        self.port, self.token = port, token
        self.connections = ExitStack()
        self._tls = ssl.create_default_context(cafile=certificate)
        self._tls.check_hostname = False  # the name is not in the name service

    def ask(self, method: str, path: str, body: object = None, **headers: str) -> http.client.HTTPResponse:
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self._tls, timeout=60)
        given = {"Host": f"{NAME}:{self.port}", "Authorization": f"Bearer {self.token}", **headers}
        given = {name.replace("_", "-"): value for name, value in given.items() if value}
        self.connections.callback(connection.close)
        connection.request(method, path, None if body is None else json.dumps(body), given)
        response = connection.getresponse()
        self.connections.callback(response.close)
        return response


@pytest.fixture
def site(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """The configuration is that of ``deploy/``, with other paths, ports and a user that may read them."""
    port = free_port()
    monkeypatch.setenv("REKINDLE_PUBLIC_URL", f"https://{NAME}:{port}")
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subject = ["-subj", f"/CN={NAME}", "-addext", f"subjectAltName=DNS:{NAME}"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
    subprocess.run([*command, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    with ServeProcess(home) as server:
        text = (DEPLOY / "proxy" / "nginx.conf").read_text()
        for old, new in {
            "127.0.0.1:8700": server.url.removeprefix("http://"),
            "listen 443": f"listen 127.0.0.1:{port}",
            f"/etc/ssl/certs/{NAME}.pem": str(certificate),
            f"/etc/ssl/private/{NAME}.key": str(key),
        }.items():
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "nginx.conf").write_text(
            f"daemon off;\nmaster_process off;\npid {tmp_path}/pid;\nerror_log {tmp_path}/error.log;\nevents {{}}\n"
            f"http {{\naccess_log off;\nclient_body_temp_path {tmp_path}/body;\nproxy_temp_path {tmp_path}/proxy;\n"
            f"fastcgi_temp_path {tmp_path}/1;\nuwsgi_temp_path {tmp_path}/2;\nscgi_temp_path {tmp_path}/3;\n{text}}}\n"
        )
        with subprocess.Popen(["nginx", "-p", tmp_path, "-c", tmp_path / "nginx.conf", "-e", "stderr"]) as nginx:
            try:
                until(lambda: nginx.poll() is None and is_open(port), "nginx listens")
                reached = Site(port, server.token, certificate)
                with reached.connections:
                    yield reached
            finally:
                nginx.terminate()


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed: apt-get install nginx-light")
def test_nginx_with_tls_passes_requests_streams_and_refusals_on(site: Site) -> None:
    assert site.ask("GET", "/readyz", Authorization="").status == 200
    assert site.ask("GET", "/api/v1/jobs").status == 200
    assert site.ask("GET", "/api/v1/jobs", Authorization="").status == 401
    assert site.ask("GET", "/api/v1/jobs", Host="evil.example").status == 400
    # A stream: its first event is here while it stays open.
    stream = site.ask("GET", "/api/v1/events")
    assert stream.status == 200
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert stream.readline()
    stream.close()
    # A browser: the session cookie, and a page of another site that would use it.
    signed_in = site.ask(
        "POST",
        "/login",
        {"token": site.token},
        Authorization="",
        Origin=f"https://{NAME}:{site.port}",
        Content_Type="application/json",
    )
    assert signed_in.status in (200, 204, 303), signed_in.read()
    assert "; Secure" in signed_in.headers["set-cookie"]
    cookie = signed_in.headers["set-cookie"].partition(";")[0]
    change = {"Authorization": "", "Cookie": cookie, "Content_Type": "application/json"}
    own, foreign = f"https://{NAME}:{site.port}", "https://evil.example"
    assert site.ask("POST", "/api/v1/jobs", {}, **change, Origin=own).status == 422
    assert site.ask("POST", "/api/v1/jobs", {}, **change, Origin=foreign).status == 403
    assert site.ask("POST", "/api/v1/jobs", {}, **change, Origin=own, Sec_Fetch_Site="cross-site").status == 403


# --- systemd

_IN_NAMESPACE = """
set -e
mount -t proc proc /proc
mount -t tmpfs tmpfs /sys/fs/cgroup
mount -t cgroup2 none /sys/fs/cgroup
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/system "/sys/fs/cgroup/$1"
echo $$ > "/sys/fs/cgroup/$1/cgroup.procs"
/lib/systemd/systemd --user --log-target=console &
wait
"""


def can_run_systemd() -> bool:
    """Whether this is root, who may use mount namespaces and the second version of control groups."""
    if os.geteuid() != 0 or not Path("/lib/systemd/systemd").exists():
        return False
    probe = f"/sys/fs/cgroup/rekindle-probe-{os.getpid()}"
    return in_cgroups(f"mkdir {probe} && rmdir {probe}")


def in_cgroups(command: str) -> bool:
    """Run ``command`` where /sys/fs/cgroup is the tree of version 2; whether it succeeded."""
    mount = "mount -t tmpfs tmpfs /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup"
    shell = ["unshare", "--mount", "sh", "-c", f"{mount} && {command}"]
    return subprocess.run(shell, stderr=subprocess.DEVNULL, check=False).returncode == 0


class UserManager:
    """``systemd --user`` in a process namespace of its own, which ends with it and takes everything below along."""

    def __init__(self, root: Path) -> None:
        self._run = root / "xdg"
        self._run.mkdir(mode=0o700)
        self.units = root / "config" / "systemd" / "user"
        self.units.mkdir(parents=True)
        self._group = f"rekindle-test-{os.getpid()}"
        paths = {"XDG_RUNTIME_DIR": str(self._run), "XDG_CONFIG_HOME": str(root / "config"), "HOME": str(root)}
        self.environment = {"PATH": os.environ["PATH"], **paths}
        self._log = (root / "systemd.log").open("wb")
        unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        self._process = subprocess.Popen(
            [*unshare, "sh", "-c", _IN_NAMESPACE, "sh", self._group],
            env=self.environment,
            stdout=self._log,
            stderr=self._log,
        )

    def __enter__(self) -> "UserManager":
        until(lambda: (self._run / "systemd" / "private").exists(), "systemd accepts commands")
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
        remove = f"find /sys/fs/cgroup/{self._group} -depth -type d -exec rmdir {{}} +"
        until(lambda: in_cgroups(remove), "its control groups are empty and gone")

    def call(self, *arguments: str) -> str:
        """Within its namespaces: it wants to know which process has asked."""
        inside = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()[0]
        command = ["nsenter", "--target", inside, "--mount", "--pid", "systemctl", "--user", *arguments]
        ran = subprocess.run(command, env=self.environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()


@pytest.mark.skipif(not can_run_systemd(), reason="needs root, systemd, namespaces and control groups of version 2")
def test_a_restart_of_the_unit_by_systemd_leaves_a_training_alone(home: Path, tmp_path: Path, code: Path) -> None:
    with UserManager(tmp_path) as systemd:
        unit = (DEPLOY / "rekindle-user.service").read_text()
        program = f"{sys.executable} -m rekindle_service serve --port {free_port()}"
        unit = re.sub(
            r"^ExecStart=.*", f"ExecStart={program}\nEnvironment=REKINDLE_HOME={home}", unit, flags=re.MULTILINE
        )
        (systemd.units / "rekindle.service").write_text(unit)
        systemd.call("start", "rekindle")
        info = home / "server.json"
        until(info.exists, "the server has written server.json", 60)
        api = RestApi(UnitServer(json.loads(info.read_text())["url"], (home / "token").read_text().strip()))
        job_id = api.post("/jobs", {"script": "train.py", "code": {"path": str(code)}, "device": "cpu"})["id"]
        lock = RunDir(home / "runs" / job_id).keeper_lock
        until((code / "started").exists, "the job runs", 120)
        server, keeper = systemd.call("show", "--property=MainPID", "rekindle"), lock_holder(lock)
        systemd.call("restart", "rekindle")
        assert systemd.call("show", "--property=MainPID", "rekindle") != server
        until(info.exists, "the next server has written server.json", 60)
        assert lock_holder(lock) == keeper is not None
        (code / "go").touch()
        job = until(lambda: ended(api.get(f"/jobs/{job_id}")), "the job has ended", 120)
        assert (job["state"], job["attempt"]) == ("succeeded", 1)
        systemd.call("stop", "rekindle")


def ended(job: dict[str, Any]) -> dict[str, Any] | None:
    return job if job["state"] in ("succeeded", "failed", "cancelled") else None


@dataclass(frozen=True)
class UnitServer:
    url: str
    token: str


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """The code of a job that waits for the test."""
    directory = tmp_path / "code"
    directory.mkdir()
    (directory / "train.py").write_text(
        "import pathlib, time\n"
        f"here = pathlib.Path({str(directory)!r})\n"
        "(here / 'started').touch()\n"
        "while not (here / 'go').exists():\n    time.sleep(0.05)\n"
    )
    return directory
