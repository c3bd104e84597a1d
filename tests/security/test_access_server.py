"""People at a real server: by UNIX socket, by browser session, with limits, and what the audit log keeps of it."""

import http.client
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from cli_process import rekindle
from e2e.serve_process import ServeProcess
from rekindle_service.client import Client, NoServerError, ProblemError, Server, is_settled
from rekindle_service.config.settings import Settings
from rekindle_service.server import serve

NOBODY, USERS = 65534, 100


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    """With a short path, as a UNIX socket needs it, which every user may enter."""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="rk") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[ServeProcess]:
    home = directory / "home"
    home.mkdir(mode=0o700)
    shared = directory / "lab"
    shared.mkdir(mode=0o755)
    settings = f'socket = "{shared}/s.sock"\nsocket_group = "users"\n'
    (home / "rekindle.toml").write_text(settings if os.geteuid() == 0 else "")
    with ServeProcess(home) as running:
        yield running
        with Client.from_home(Settings(home=home)) as client:  # else a keeper writes while the directory is removed
            for job in client.jobs():
                if not is_settled(job):
                    client.cancel(job["id"])
                client.wait(job["id"])


def as_user(uid: int, gid: int, act: Callable[[], Any]) -> Any:
    """What ``act`` returns in a process of another user of this machine, or the name of what it raises."""
    reading, writing = os.pipe()
    if (pid := os.fork()) == 0:
        try:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            result = act()
        except BaseException as error:  # noqa: BLE001 the parent judges it
            result = type(error).__name__
        os.write(writing, json.dumps(result).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = json.loads(pipe.read())
    os.waitpid(pid, 0)
    return answer


def by_socket(path: Path, method: str, url: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """The status and JSON of an answer that comes over a UNIX socket."""
    connection = http.client.HTTPConnection("localhost", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(path))
    text = None if body is None else json.dumps(body)
    connection.request(method, url, text, {"Content-Type": "application/json", **headers})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, json.loads(content) if content else None


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become other users")


@needs_root
def test_the_socket_knows_who_connects(server: ServeProcess, directory: Path) -> None:
    path = directory / "lab" / "s.sock"
    assert path.stat().st_mode & 0o777 == 0o660
    assert by_socket(path, "GET", "/api/v1/me")[1]["scope"] == "admin"
    status, me = as_user(NOBODY, USERS, lambda: by_socket(path, "GET", "/api/v1/me"))
    assert (status, me["person"], me["scope"], me["via"]) == (200, "nobody", "submit", "socket")
    assert as_user(NOBODY, USERS, lambda: by_socket(path, "POST", "/api/v1/tokens", {"person": "eve"}))[0] == 403
    assert as_user(NOBODY, NOBODY, lambda: by_socket(path, "GET", "/api/v1/me")) == "PermissionError"
    job = as_user(NOBODY, USERS, lambda: by_socket(path, "POST", "/api/v1/jobs", {"recipe": "single"}))[1]
    assert job["owner"] == "nobody"
    assert json.loads((server.home / "runs" / job["id"] / "spec.json").read_text())["submission"]["owner"] == "nobody"
    by_socket(path, "POST", f"/api/v1/jobs/{job['id']}/cancel")


@needs_root
@pytest.mark.parametrize("header", ["X-Forwarded-For", "Forwarded", "Via", "X-Real-IP"])
def test_nobody_is_the_user_of_a_proxy(server: ServeProcess, directory: Path, header: str) -> None:
    path = directory / "lab" / "s.sock"
    assert by_socket(path, "GET", "/api/v1/me", **{header: "192.0.2.1"})[0] == 401
    bearer = {"Authorization": f"Bearer {server.token}"}
    assert by_socket(path, "GET", "/api/v1/me", **{header: "192.0.2.1"}, **bearer)[0] == 200
    assert by_socket(path, "GET", "/api/v1/me", Authorization="Bearer wrong")[0] == 401


def test_a_socket_for_a_group_in_the_closed_home_is_refused(
    directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(Settings(home=directory / "closed", port=0, socket_group="users")) == 2
    assert "is in the home, which only the user of the server can enter" in capsys.readouterr().err
    assert serve(Settings(home=directory / "closed", port=0, socket_group="no-such", socket=directory / "x")) == 2
    assert "there is no group no-such" in capsys.readouterr().err
    (directory / "file").write_text("precious")
    assert serve(Settings(home=directory / "closed", port=0, socket=directory / "file")) == 2
    assert "cannot listen on the UNIX socket" in capsys.readouterr().err
    assert (directory / "file").read_text() == "precious"


def test_the_command_line_needs_no_token(directory: Path) -> None:
    """The home's socket is the default; that of a killed server is replaced, and it goes with the server."""
    home = directory / "own"
    home.mkdir(mode=0o700)
    path = home / "rekindle.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    with ServeProcess(home):
        assert path.stat().st_mode & 0o777 == 0o600
        (home / "token").write_text("changed meanwhile")  # nobody has to send it
        assert rekindle(home, "ps").returncode == 0
        variables = {"REKINDLE_URL": f"unix:{path}"}
        assert "OWNER" in rekindle(directory / "nowhere", "ps", variables=variables).stdout
    assert not path.exists()


def test_people_from_create_to_revoke(server: ServeProcess, directory: Path) -> None:
    created = rekindle(server.home, "token", "create", "anna", "--expires", "30d", "--note", "laptop")
    assert created.returncode == 0, created.stderr
    token = created.stdout.strip()
    assert token.startswith("rk_")
    assert "valid until" in created.stderr
    listed = rekindle(server.home, "token", "list").stdout
    assert "anna" in listed
    assert token not in listed
    assert token.encode() not in b"".join(path.read_bytes() for path in server.home.glob("rekindle.db*"))
    secret = directory / "annas"
    secret.write_text(token)
    anna = {"REKINDLE_URL": server.url, "REKINDLE_TOKEN_FILE": str(secret)}
    elsewhere = directory / "elsewhere"
    (directory / "code").mkdir()
    (directory / "code" / "train.py").write_text("")
    words = ("submit", "-o", "json", "--device", "cpu", "train.py")
    submitted = rekindle(elsewhere, *words, cwd=directory / "code", variables=anna)
    assert submitted.returncode == 0, submitted.stderr
    job = json.loads(submitted.stdout)
    assert job["owner"] == "anna"
    assert job["name"] in rekindle(server.home, "ps", "--owner", "anna").stdout
    assert job["name"] not in rekindle(server.home, "ps", "--owner", "root").stdout
    assert "needs the scope admin" in rekindle(elsewhere, "token", "create", "eve", variables=anna).stderr
    assert "anna" in rekindle(server.home, "token", "revoke", "anna").stdout
    assert "may be revoked or expired" in rekindle(elsewhere, "ps", variables=anna).stderr
    assert "list them with" in rekindle(server.home, "token", "revoke", "anna").stderr
    assert "is no time span" in rekindle(server.home, "token", "create", "x", "--expires", "1y").stderr


def test_a_session_ends_with_sign_out_and_with_its_token_and_survives_the_server(server: ServeProcess) -> None:
    with Client.from_home(Settings(home=server.home)) as client, ExitStack() as stack:
        new = client.create_token("carl", "read")
        first, second = (stack.enter_context(_signed_in(server, new["token"])) for _ in range(2))
        assert first.get("/api/v1/me").json() == {**client.me(), "person": "carl", "scope": "read", "via": "browser"}
        cookie = dict(first.cookies)
        assert first.post("/logout", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 204
        assert httpx2.get(f"{server.url}/api/v1/me", cookies=cookie).status_code == 401  # a copy is worth nothing
        server.kill()
        server.start()
        assert second.get("/api/v1/me").status_code == 200
        client.revoke_token(new["id"])
        assert second.get("/api/v1/me").status_code == 401
        assert second.get("/", headers={"Accept": "text/html"}).status_code == 303


def _signed_in(server: ServeProcess, token: str) -> httpx2.Client:
    answer = httpx2.post(f"{server.url}/login", json={"token": token}, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.status_code == 204
    assert "HttpOnly" in answer.headers["set-cookie"]
    return httpx2.Client(base_url=server.url, trust_env=False, cookies=dict(answer.cookies))


def test_an_event_stream_ends_when_its_token_is_revoked(server: ServeProcess) -> None:
    with Client.from_home(Settings(home=server.home)) as client:
        new = client.create_token("dora")
        headers = {"Authorization": f"Bearer {new['token']}"}
        with httpx2.stream(
            "GET", f"{server.url}/api/v1/events", headers=headers, timeout=60, trust_env=False
        ) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: hello"
            client.revoke_token(new["id"])
            for _ in lines:  # a stream that does not end fails by the timeout of the test
                pass


def test_wrong_tokens_never_lock_out_the_right_one(server: ServeProcess) -> None:
    with httpx2.Client(base_url=server.url, trust_env=False) as http:
        answers = [http.get("/api/v1/me", headers={"Authorization": f"Bearer {n}"}).status_code for n in range(40)]
        assert (answers[0], answers[-1]) == (401, 429)
        limited = http.post("/login", json={"token": "guess"})
        assert (limited.status_code, int(limited.headers["Retry-After"]) > 0) == (429, True)
        right = {"Authorization": f"Bearer {server.token}"}
        assert http.get("/api/v1/me", headers=right).status_code == 200  # from the same address
        assert http.post("/login", json={"token": server.token}).status_code == 204


def test_the_audit_log_says_who_did_what_from_where(server: ServeProcess) -> None:
    with Client.from_home(Settings(home=server.home)) as client:
        new = client.create_token("fred", "submit")
        with Client(lambda: Server(server.url, new["token"])) as fred:
            job = fred.submit({"recipe": "single", "device": "cpu"})
            fred.cancel(job["id"])
            with pytest.raises(ProblemError, match="needs the scope admin"):
                fred.create_token("eve")
        entries = client.audit("fred")
        done = [(each["action"], each["target"], each["status"], each["via"]) for each in reversed(entries)]
        assert done == [
            ("POST /api/v1/jobs", f"/api/v1/jobs/{job['id']}", 201, "token"),
            ("POST /api/v1/jobs/{job_id}/cancel", f"/api/v1/jobs/{job['id']}/cancel", 202, "token"),
            ("POST /api/v1/tokens", "/api/v1/tokens", 403, "token"),
        ]
        assert {each["address"] for each in entries} == {"127.0.0.1"}
        assert {each["token_id"] for each in entries} == {new["id"]}
        created = next(each for each in client.audit() if "fred" in each["detail"])
        assert created["detail"] == f"token {new['id']} for fred, scope submit"
        assert new["token"] not in json.dumps(client.audit())
    shown = rekindle(server.home, "audit", "--person", "fred").stdout
    assert "POST /tokens" in shown


def test_no_token_is_in_the_list_of_processes(server: ServeProcess) -> None:
    listed = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert server.token not in listed


def test_a_token_file_that_is_missing_is_named(directory: Path) -> None:
    settings = Settings(url="http://127.0.0.1:1", token_file=directory / "none")
    with Client.from_home(settings) as client, pytest.raises(NoServerError, match=f"{directory}/none cannot be read"):
        client.me()
