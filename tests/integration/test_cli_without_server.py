"""Client commands load little, and name the next step where they can do nothing."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from cli_process import environment, heed_interrupts, rekindle
from rekindle_service.config.home import Home

_HEAVY = ("torch", "fastapi", "starlette", "sqlmodel", "sqlalchemy", "uvicorn", "numpy", "alembic")
_PROBE = """
import json, sys
from rekindle_service.cli.main import run
for words in json.loads(sys.argv[1]):
    sys.argv = ["rekindle", *words]
    try:
        run()
    except SystemExit:
        pass
    print("loaded by", words, *sorted(set(sys.modules) & {modules!r}))
"""


def test_no_client_command_loads_torch_or_the_server(tmp_path: Path) -> None:
    commands = [["--help"], ["ps"], ["logs", "x"], ["top"], ["submit", "--recipe", "ddp"], ["token"]]
    command = [sys.executable, "-c", _PROBE.format(modules=set(_HEAVY)), json.dumps(commands)]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=True)
    loaded = [line for line in done.stdout.splitlines() if line.startswith("loaded by")]
    assert loaded == [f"loaded by {words}" for words in commands]


@pytest.mark.parametrize("words", [[], ["ps"], ["wait", "x"], ["logs", "-f", "x"], ["show", "x"], ["top"]])
def test_without_a_server_a_command_is_an_error_with_the_way_to_start_one(tmp_path: Path, words: list[str]) -> None:
    done = rekindle(tmp_path, *words)
    assert done.returncode == 2
    assert f"No server is running in {tmp_path}" in done.stderr
    assert "rekindle serve" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize("words", [["ps"], ["doctor"], ["token"]])
def test_a_home_that_is_no_directory_is_an_error(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "file").touch()
    done = rekindle(tmp_path / "file", *words)
    assert done.returncode == 2
    for shown in ("home: must be a directory", f"given: {tmp_path / 'file'}", "REKINDLE_HOME"):
        assert shown in done.stderr


@pytest.mark.parametrize(("words", "reason"), [(["ps"], "No server is running"), (["token"], "Is a directory")])
def test_what_is_no_file_in_the_home_is_named_with_its_path(tmp_path: Path, words: list[str], reason: str) -> None:
    for name in ("server.lock", "token"):
        (tmp_path / name).mkdir()
    done = rekindle(tmp_path, *words)
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr
    assert reason in done.stderr
    assert "Internal error" not in done.stderr


@pytest.mark.parametrize("lock", ["none", "free", "another's"])
def test_a_listener_on_the_port_of_a_killed_server_gets_no_token(tmp_path: Path, lock: str) -> None:
    (tmp_path / "token").write_text("secret\n")
    held = None if lock == "none" else Home(tmp_path).lock()
    if held is not None and lock == "free":
        held.release()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        (tmp_path / "server.json").write_text(json.dumps({"url": url, "pid": None if lock == "none" else 1}))
        done = rekindle(tmp_path, "ps")
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    if held is not None and lock == "another's":
        held.release()
    assert done.returncode == 2
    assert f"No server is running in {tmp_path}" in done.stderr


def test_another_servers_url_does_not_get_this_homes_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        done = rekindle(tmp_path, "ps", variables={"REKINDLE_URL": url})
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert done.returncode == 2
    assert "REKINDLE_TOKEN" in done.stderr


def test_another_program_on_the_port_is_not_mistaken_for_rekindle(tmp_path: Path) -> None:
    import http.server
    import threading

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(418)

        def log_message(self, *args: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as other:
        threading.Thread(target=other.handle_request).start()
        url = f"http://127.0.0.1:{other.server_address[1]}"
        done = rekindle(tmp_path, "ps", variables={"REKINDLE_URL": url, "REKINDLE_TOKEN": "t"})
    assert done.returncode == 2
    assert "answered 418" in done.stderr
    assert "Is this rekindle?" in done.stderr


def test_the_token_is_printed_alone_so_that_a_shell_can_use_it(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    done = rekindle(tmp_path, "token")
    assert (done.returncode, done.stdout) == (0, "secret\n")
    assert str(tmp_path / "token") in done.stderr


def test_a_missing_token_is_an_error_that_names_its_path(tmp_path: Path) -> None:
    done = rekindle(tmp_path, "token")
    assert done.returncode == 2
    assert str(tmp_path / "token") in done.stderr


@pytest.mark.parametrize(
    ("words", "file", "variables", "shown"),
    [
        (["serve"], "", {"REKINDLE_PORT": "many"}, ["port: ", "given: many", "REKINDLE_PORT"]),
        (["ps"], "port = [", {}, ["{home}/rekindle.toml"]),
        (
            ["doctor"],
            "prot = 1\n",
            {"REKINDLE_CPU_SLOT": "4"},
            [
                "prot: unknown setting in {home}/rekindle.toml",
                "did you mean 'port'?",
                "unknown setting REKINDLE_CPU_SLOT in the environment is ignored",
            ],
        ),
        (["serve"], "", {"REKINDLE_CPU_SLOT": "4"}, ["did you mean 'REKINDLE_CPU_SLOTS'?"]),
        *(
            (["serve"], "", {"REKINDLE_HOST": host}, [f"host {host} can be reached", "--allow-remote"])
            for host in ("0.0.0.0", "::", "", "box.example")  # noqa: S104 refused
        ),
    ],
)
def test_wrong_settings_are_reported_with_name_value_and_file_and_start_no_server(
    tmp_path: Path, words: list[str], file: str, variables: dict[str, str], shown: list[str]
) -> None:
    (tmp_path / "rekindle.toml").write_text(file)
    done = rekindle(tmp_path, *words, variables=variables)
    assert done.returncode == 2
    for text in shown:
        assert text.format(home=tmp_path) in done.stderr
    assert "REKINDLE_PROT" not in done.stderr
    assert not (tmp_path / "token").exists()


def test_a_home_that_cannot_be_made_is_an_error_with_advice(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = rekindle(tmp_path / "file" / "home", "serve", "--port", "0")
    assert done.returncode == 2
    assert f"cannot use {tmp_path / 'file' / 'home'} as home (Not a directory): choose another directory" in done.stderr


def test_wrong_settings_of_the_server_do_not_keep_a_client_from_its_work(tmp_path: Path) -> None:
    (tmp_path / "rekindle.toml").write_text('url = "http://127.0.0.1:1"\ncpu_slots = "many"\ntoken_flie = "x"\n')
    done = rekindle(tmp_path, "ps", variables={"REKINDLE_PORT": "many"})
    assert "http://127.0.0.1:1" in done.stderr, "it has tried to connect"
    assert f"unknown setting token_flie in {tmp_path / 'rekindle.toml'} is ignored" in done.stderr
    assert "did you mean 'token_file'?" in done.stderr
    assert "many" not in done.stderr


def test_the_home_may_be_given_before_the_verb(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "token").write_text("of the other home\n")
    assert rekindle(tmp_path, "--home", str(other), "token").stdout == "of the other home\n"


@pytest.mark.parametrize(("words", "shown"), [(["submit"], "name a script"), (["no-such-verb"], "no-such-verb")])
def test_a_wrong_command_line_ends_with_2(tmp_path: Path, words: list[str], shown: str) -> None:
    done = rekindle(tmp_path, *words, cwd=tmp_path)
    assert done.returncode == 2
    assert shown in done.stderr


def test_a_reader_that_closes_the_pipe_ends_the_command_quietly(tmp_path: Path) -> None:
    command = f"{sys.executable} -m rekindle_service --help | true"
    done = subprocess.run(
        ["bash", "-c", command], env=environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.stderr == ""


def test_ctrl_c_while_the_program_is_loading_leaves_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    command = [sys.executable, "-m", "rekindle_service", "ps"]
    variables = environment(tmp_path, PYTHONPATH=str(tmp_path))
    done = subprocess.run(
        command, env=variables, capture_output=True, text=True, check=False, preexec_fn=heed_interrupts
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
