"""Which interpreter `rekindle submit` and `rekindle experiment` ask for."""

import sys
from pathlib import Path
from typing import Any

import pytest

from rekindle_service.cli.job_interpreter import send_with_interpreter, shell_python
from rekindle_service.client import ProblemError
from rekindle_service.config.client_settings import ClientSettings

LOCAL = ClientSettings(home=Path("/nowhere"))
SCRIPT: dict[str, Any] = {"script": "train.py"}


class Server:
    """Refuses the interpreters of ``lacking``; None among them: those that it would choose itself."""

    def __init__(self, *lacking: str | None, field: str = "python") -> None:
        self.lacking, self.field = lacking, field
        self.requests: list[dict[str, Any]] = []

    def __call__(self, body: dict[str, Any]) -> str:
        self.requests.append(body)
        job = body.get("base", body)
        python = job.get("python") if isinstance(job, dict) else "unreadable"
        if python in self.lacking:
            problem: Any = {"field": self.field, "rule": "must have torch", "value": python or "/own"}
            raise ProblemError({"title": "wrong", "errors": [problem]})
        return "sent"


@pytest.fixture
def active(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    monkeypatch.setenv("VIRTUAL_ENV", "/envs/mine")
    return "/envs/mine/bin/python"


def test_a_job_gets_the_interpreter_of_the_active_environment(active: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    assert send_with_interpreter(LOCAL, server, SCRIPT) == "sent"
    assert server.requests == [{**SCRIPT, "python": active}]
    monkeypatch.delenv("VIRTUAL_ENV")
    monkeypatch.setenv("CONDA_PREFIX", "/conda")
    send_with_interpreter(LOCAL, server, {"name": "lr", "base": SCRIPT}, "base")
    assert server.requests[1:] == [{"name": "lr", "base": {**SCRIPT, "python": "/conda/bin/python"}}]


@pytest.mark.parametrize(
    ("fields", "section"),
    [
        ({**SCRIPT, "python": "/mine"}, ""),
        ({"recipe": "ddp"}, ""),
        ({**SCRIPT, "slurm": {}}, ""),
        ({**SCRIPT, "nodes": 2}, ""),
        ({"builtin": "shuffle"}, "base"),
        ({"base": "wrong"}, "base"),
    ],
)
def test_nothing_is_added_to_a_job_that_has_an_interpreter_or_needs_another(
    active: str, fields: dict[str, Any], section: str
) -> None:
    server = Server()
    send_with_interpreter(LOCAL, server, fields, section)
    assert server.requests == [fields]


def test_an_active_environment_that_cannot_run_jobs_is_named_and_the_server_chooses(
    active: str, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server(active)
    assert send_with_interpreter(LOCAL, server, SCRIPT) == "sent"
    assert server.requests == [{**SCRIPT, "python": active}, SCRIPT]
    assert f"{active}, of the active environment, is not used: it must have torch" in " ".join(
        capsys.readouterr().err.split()
    )


def test_where_no_interpreter_can_run_jobs_the_refusal_names_each_that_was_tried(active: str) -> None:
    with pytest.raises(ProblemError) as caught:
        send_with_interpreter(LOCAL, Server(active, None), SCRIPT)
    assert [each["value"] for each in caught.value.problem["errors"]] == [active, "/own"]


def test_another_refusal_is_passed_on_and_not_sent_again(active: str) -> None:
    server = Server(active, field="ranks.max")
    with pytest.raises(ProblemError):
        send_with_interpreter(LOCAL, server, SCRIPT)
    assert len(server.requests) == 1


def test_a_server_on_another_machine_gets_no_path_of_this_one(
    active: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, remote = Server(), ClientSettings(home=tmp_path, url="http://192.0.2.1:8700")
    send_with_interpreter(remote, server, SCRIPT)
    assert server.requests == [SCRIPT]
    assert "on another machine" in capsys.readouterr().err


def test_without_an_environment_it_is_what_python_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert shell_python() is None
    (tmp_path / "python3").symlink_to(sys.executable)
    found = shell_python()
    assert found is not None
    assert (found.path, found.environment) == (str(tmp_path / "python3"), None)
    shim = tmp_path / "python"
    shim.write_text("#!/bin/sh\necho /pyenv/versions/3.12/bin/python\n")
    shim.chmod(0o755)
    found = shell_python()
    assert found is not None
    assert found.path == "/pyenv/versions/3.12/bin/python"
    shim.write_text("#!/bin/sh\necho no version is set >&2; exit 127\n")
    assert shell_python() is None
