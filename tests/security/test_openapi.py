"""schemathesis: requests made from the OpenAPI of the server, valid and invalid, and every check of the answers."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from job_records import record_attempt
from rekindle.contract.states import JobState
from security.conftest import BEARER, Served

pytestmark = pytest.mark.long

pytest.importorskip("schemathesis", reason="schemathesis is not installed: pip install '.[test]'")

# Whatever a stranger requests but the open routes is 401, a method that an open route lacks among it, and not 405.
STRANGER = ("--exclude-checks", "unsupported_method")

CONFIG = Path(__file__).with_name("schemathesis.toml")


def schemathesis(served: Served, folder: Path, *options: str, ids: dict[str, str] | None = None) -> str:
    """The report of schemathesis; fails where a check has failed. ``ids``: values of parameters of the path."""
    parameters = "".join(f'"path.{name}" = "{value}"\n' for name, value in (ids or {}).items())
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG.read_text() + (f"\n[parameters]\n{parameters}" if parameters else ""))
    schema = folder / "openapi.json"  # the route needs the token, which some runs do without
    schema.write_bytes(served.request("GET", "/openapi.json")[1])
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", config, "run", schema]
    url = f"http://{served.address[0]}:{served.address[1]}"
    fixed = ("--no-color", "--continue-on-failure", "--request-timeout", "120")
    # the stream of events has no end; tests/integration/test_api_events.py reads it
    process = subprocess.run(
        [*command, "--url", url, "--exclude-path", "/api/v1/events", *fixed, *options],
        cwd=folder,
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert int(re.findall(r"(\d+) generated", process.stdout)[-1]) > 40, process.stdout
    return process.stdout


@pytest.fixture(autouse=True)
def without_limit_on_wrong_tokens(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of schemathesis sends one to each route, and expects 401."""
    monkeypatch.setattr(served.server.state.access.failures, "wait", lambda _: 0.0)


@pytest.fixture(scope="module")
def ids(served: Served, job: dict[str, Any]) -> dict[str, str]:
    """Ids of a running job with a rank that has written a log and metrics, and of an experiment."""
    rank = record_attempt(served.server.run_dir(job)).rank(0)
    rank.log("stdout").write_bytes(b"step 1\n\xff\xfe\n" * 100)
    rank.metrics.write_text('{"step": 1, "epoch": 0, "at": 1.0, "values": {"loss": 0.5}}\n')
    served.server.move(job, JobState.STARTING, JobState.RUNNING, attempt=1, world_size=1)
    body = json.dumps({"base": {"recipe": "ddp", "device": "cpu"}, "matrix": {"--seed": [1, 2]}})
    answer, content = served.request(
        "POST", "/api/v1/experiments", body, {**BEARER, "Content-Type": "application/json"}
    )
    assert answer.status == 201, content
    return {"job_id": job["id"], "rank": "0", "experiment_id": json.loads(content)["id"]}


def test_a_few_requests_of_each_route_are_answered_as_documented(
    served: Served, ids: dict[str, str], tmp_path: Path
) -> None:
    header = f"Authorization: {BEARER['Authorization']}"
    schemathesis(served, tmp_path, "--header", header, "--phases", "fuzzing", "--max-examples", "1", ids=ids)


def test_requests_without_a_token_are_rejected_as_documented(served: Served, tmp_path: Path) -> None:
    schemathesis(served, tmp_path, *STRANGER, "--phases", "fuzzing", "--max-examples", "1")


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("known", [True, False], ids=["ids of a job", "any ids"])
@pytest.mark.parametrize("token", [True, False], ids=["token", "no token"])
def test_many_requests_of_each_route_are_answered_as_documented(
    served: Served, ids: dict[str, str], tmp_path: Path, pytestconfig: pytest.Config, token: bool, known: bool
) -> None:
    """In all phases; ``--soak N`` gives N requests of each route in each of them."""
    header = ("--header", f"Authorization: {BEARER['Authorization']}") if token else STRANGER
    examples = ("--max-examples", str(pytestconfig.getoption("--soak")))
    print(schemathesis(served, tmp_path, *header, *examples, ids=ids if known else None))
