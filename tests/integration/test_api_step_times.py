"""One value says what the time of a step is spent on: over HTTP, to Prometheus, and on the command line."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from api_server import ApiServer
from job_records import record_attempt
from rekindle.contract.run_dir.step_records import StepPhase
from rekindle.contract.states import JobState
from rekindle_service.cli.formatting import step_split
from step_files import lockstep, write_steps


@pytest.fixture
def job(server: ApiServer, code: Path) -> dict[str, Any]:
    job = server.submit(code, ranks=2)
    server.move(job, JobState.STARTING, JobState.RUNNING, devices=["cpu:0", "cpu:1"])
    record_attempt(server.run_dir(job), world_size=2)
    server.read_journal(job)
    return job


def step_times(server: ApiServer, job: dict[str, Any]) -> dict[str, Any]:
    answer = server.api.get(f"/api/v1/jobs/{job['id']}/step-times")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_the_slowest_rank_is_shown_to_people_and_to_prometheus(server: ApiServer, job: dict[str, Any]) -> None:
    write_steps(server.run_dir(job), lockstep({}, {StepPhase.DATA: 0.16}))
    found = step_times(server, job)
    assert (found["attempt"], found["limit"], found["rank"]) == (1, "data", 1)
    assert found["summary"].startswith("Input-bound: 63% of a step waits for the data loader, most on rank 1")
    assert [each["rank"] for each in found["ranks"]] == [0, 1]
    assert found["step_seconds"] == pytest.approx(sum(found["seconds"].values()))
    assert step_split(found).startswith("255 ms: data 63%, backward 20%")  # type: ignore[arg-type]
    families = text_string_to_metric_families(server.api.get("/metrics").text)
    samples = [
        sample for family in families if family.name == "rekindle_job_step_phase_seconds" for sample in family.samples
    ]
    assert {each.labels["phase"]: each.value for each in samples} == pytest.approx(found["seconds"])


def test_what_is_not_measured_says_so(server: ApiServer, job: dict[str, Any], code: Path) -> None:
    assert "no rank has taken" in step_times(server, job)["summary"]
    write_steps(server.run_dir(job), lockstep({}))
    assert step_times(server, job)["limit"] == "compute", "of the ranks that are measured"
    path = server.run_dir(job).attempt(1).rank(0).steps
    for content in ("{", "[]", '{"steps": -1}', path.read_text().replace("0.03", "1e999")):
        path.write_text(content)
        assert step_times(server, job)["limit"] is None, content
    queued = server.submit(code, step_times=False)
    assert step_times(server, queued)["summary"] == "Not measured: the job has not started yet."
    server.move(queued, JobState.STARTING, JobState.RUNNING, devices=[])
    record_attempt(server.run_dir(queued))
    server.read_journal(queued)
    assert "--no-step-times" in step_times(server, queued)["summary"]
