"""Values of environment variables: used by the job, found nowhere else."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from rekindle.contract.environment import ENV_FILES
from rekindle.contract.files import read_json
from rekindle.contract.job import HIDDEN, JobSpec
from rekindle.contract.job_options import TargetKind
from rekindle.keeper.keeper_environment import SecretError, read_secrets
from rekindle_service.submission import (
    MissingVariableError,
    hide_secrets,
    job_variables,
    stored_values,
    without_password,
)

SECRET = "wandb-key-0123456789"
PATH = "/api/v1/jobs"


def submitted(server: ApiServer, code: Path, env: dict[str, Any]) -> dict[str, Any]:
    (code / "train.py").write_text("")
    answer = server.api.post(PATH, json={"script": "train.py", "code": {"path": str(code)}, "env": env})
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_value_is_stored_in_one_file_of_its_owner_and_in_no_answer(server: ApiServer, code: Path) -> None:
    env = {"KEY": SECRET, "FILE": {"file": "/run/secrets/key"}, "SERVER": {"from": "HOME"}}
    job = submitted(server, code, env)
    assert job["env"] == {**env, "KEY": HIDDEN}
    home = server.state.home
    with_value = [path for path in home.root.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert with_value == [home.run_dir(job["id"]).environment]
    assert with_value[0].stat().st_mode & 0o777 == 0o600
    for path in ("", "/events", "/code"):
        assert SECRET not in server.api.get(f"{PATH}/{job['id']}{path}").text


def test_no_refusal_repeats_a_value(shared_server: ApiServer) -> None:
    bodies: list[Any] = [
        {"env": {"KEY": SECRET}},
        {"env": {"KEY": SECRET + "\0"}, "recipe": "single"},
        {"env": {"KEY": [SECRET]}, "recipe": "single"},
        {"env": {"KEY": {"value": SECRET}}, "recipe": "single"},
        {"env": {"KEY": {"file": SECRET}}, "recipe": "single"},
        {"env": {"KEY": 1}, "ranks": {"env": {"KEY": SECRET}}, "recipe": "single"},
        {"env": SECRET, "recipe": "single"},
        {"env": {"A B": SECRET}, "recipe": "single"},
        {"env": {"RANK": SECRET}, "recipe": "single"},
        {"env": {"KEY": SECRET}, "recipe": "single", "code": {"git": f"https://me:{SECRET}@host/repository"}},
        [{"env": {"KEY": SECRET}}],
    ]
    for body in bodies:
        for path, request in ((PATH, body), ("/api/v1/experiments", {"name": "x", "base": body, "matrix": {}})):
            answer = shared_server.api.post(path, json=request)
            assert (answer.status_code, SECRET in answer.text) == (422, False), (body, answer.text)


def test_a_reference_is_resolved_when_the_job_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key"
    key.write_text(SECRET + "\n")
    spec = JobSpec(
        "a",
        TargetKind.SCRIPT,
        "t.py",
        "/python",
        env={"A": HIDDEN},
        env_from={"B": {"file": str(key)}, "C": {"from": "OF_SERVER"}},
    )
    found = job_variables(spec, {"A": "literal"}, {"OF_SERVER": "1"})
    assert (found["A"], found["C"], json.loads(found[ENV_FILES])) == ("literal", "1", {"B": str(key)})
    monkeypatch.setenv(ENV_FILES, found[ENV_FILES])
    monkeypatch.delenv("B", raising=False)
    read_secrets()
    assert (os.environ["B"], ENV_FILES in os.environ) == (SECRET, False)
    with pytest.raises(MissingVariableError, match=r"env\.C refers to the variable OF_SERVER"):
        job_variables(spec, {"A": "literal"}, {})
    with pytest.raises(MissingVariableError, match="the values of A are lost"):
        job_variables(spec, {}, {"OF_SERVER": "1"})


@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "device", "large", "nul"])
def test_a_file_that_has_no_value_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    path = Path("/dev/zero") if kind == "device" else tmp_path / "key"
    match kind:
        case "directory":
            path.mkdir()
        case "fifo":
            os.mkfifo(path)
        case "large":
            path.write_bytes(bytes(b"x" * (1 << 20)))
        case "nul":
            path.write_bytes(b"a\0b")
    monkeypatch.setenv(ENV_FILES, json.dumps({"KEY": str(path)}))
    with pytest.raises(SecretError, match=f"env.KEY: {path}"):
        read_secrets()


def test_hidden_is_what_is_below_a_secret_field() -> None:
    refused = {"recipe": "x", "env": {"A": SECRET}, "items": [{"env": SECRET}], "token": SECRET}
    assert hide_secrets(refused) == {"recipe": "x", "env": HIDDEN, "items": [{"env": HIDDEN}], "token": HIDDEN}
    assert hide_secrets(SECRET, ("body", "env", "A", "[value]")) == HIDDEN


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"https://me:{SECRET}@host/repo", f"https://{HIDDEN}@host/repo"),
        (f"https://{SECRET}@host/repo", f"https://{HIDDEN}@host/repo"),
        ("https://host/repo", "https://host/repo"),
        ("file:///a/b@c", "file:///a/b@c"),
    ],
)
def test_a_refused_url_is_repeated_without_its_password(url: str, shown: str) -> None:
    assert without_password(url) == shown


def test_values_survive_the_loss_of_the_row(server: ApiServer, code: Path) -> None:
    job = submitted(server, code, {"KEY": SECRET})
    run_dir = server.state.home.run_dir(job["id"])
    spec = JobSpec.from_json(read_json(run_dir.spec))
    assert job_variables(spec, stored_values(run_dir), {}) == {"KEY": SECRET}
