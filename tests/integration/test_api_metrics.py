"""What Prometheus reads, read with the parser of its own client library."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import insert

from api_server import ApiServer
from counted_again import recount
from job_examples import a_job
from rekindle.contract.outcome import Outcome, OutcomeClass
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.states import JobState
from rekindle_service.store.attempt_rows import attempt_row
from rekindle_service.store.projection import RowChanges
from rekindle_service.store.tables import Job

Samples = dict[tuple[str, *tuple[str, ...]], float]

PATH = (JobState.STARTING, JobState.RUNNING)


def samples(server: ApiServer) -> Samples:
    """The value of each sample, by its name and the values of its labels in the order of their names."""
    answer = server.api.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = list(text_string_to_metric_families(answer.text))
    assert all(family.documentation and family.type != "unknown" for family in families)
    found = [sample for family in families for sample in family.samples]
    return {(each.name, *(value for _, value in sorted(each.labels.items()))): each.value for each in found}


def test_jobs_slots_and_the_server_are_measured(server: ApiServer, code: Path) -> None:
    server.submit(code)
    server.submit(code, hold=True)
    running = server.submit(code, ranks=1)
    server.move(running, *PATH, devices=["cpu:0"], step=40, snapshot_step=30, goodput=0.75)
    found = samples(server)
    assert found["rekindle_jobs", "queued"] == 2
    assert found["rekindle_jobs_held",] == found["rekindle_jobs", "running"] == 1
    assert found["rekindle_jobs", "failed"] == 0
    assert found["rekindle_slots", "cpu", "held"] == found["rekindle_slots", "cpu", "free"] == 1
    assert found["rekindle_scheduler_up",] == 1
    assert found["rekindle_home_free_bytes",] > 0
    assert found["rekindle_job_step", running["id"]] == 40
    assert found["rekindle_job_snapshot_step", running["id"]] == 30
    assert found["rekindle_job_goodput_ratio", running["id"]] == 0.75
    assert ("rekindle_job_steps_per_second", running["id"]) not in found  # a figure that is not known is left out


def test_jobs_without_slots_are_only_counted(server: ApiServer, code: Path) -> None:
    for _ in range(3):
        server.submit(code)
    assert not [key for key in samples(server) if key[0].startswith("rekindle_job_") and len(key) > 1]


def test_a_counter_never_goes_back_when_a_job_is_deleted(server: ApiServer, code: Path) -> None:
    job = server.submit(code, ranks=1)
    server.move(job, *PATH, devices=["cpu:0"])
    attempts = {number: failed_attempt(number) for number in (1, 2)}
    row = server.state.store.job(job["id"])
    assert row is not None
    assert server.state.store.apply_journal(row, RowChanges(1, attempts=attempts, columns={"restarts": 1}))
    server.move(job, JobState.FAILED)
    before = samples(server)
    assert before["rekindle_attempts_ended_total", "signal"] == 2
    assert before["rekindle_job_restarts_total",] == 1
    assert server.api.delete(f"/api/v1/jobs/{job['id']}").status_code == 204
    after = samples(server)
    assert after["rekindle_attempts_ended_total", "signal"] == 2
    assert after["rekindle_job_restarts_total",] == 1
    assert after["rekindle_jobs", "failed"] == 0


def test_the_number_of_series_does_not_grow_with_the_number_of_jobs(server: ApiServer, code: Path) -> None:
    running = server.submit(code, ranks=1)
    server.move(running, *PATH, devices=["cpu:0"], step=1)
    first = samples(server)
    template = a_job(state=JobState.FAILED, restarts=2)
    row = {**template.model_dump(), "spec": template.spec}
    rows = [{**row, "id": f"a{number:09d}", "number": number + 2} for number in range(1000)]
    with server.state.store.writing() as session:
        session.execute(insert(Job), rows)
        session.add_all(attempt_row(each["id"], failed_attempt(1)) for each in rows[:100])
        session.flush()
        recount(session)  # of rows that were not inserted one by one
    after = samples(server)
    assert after.keys() == first.keys()
    assert after["rekindle_jobs", "failed"] == 1000
    assert after["rekindle_job_restarts_total",] == 2000
    assert after["rekindle_attempts_ended_total", "signal"] == 100


def test_a_hostile_name_stays_one_label(server: ApiServer, code: Path) -> None:
    name = 'a"}\\ 1 <script>'
    job = server.submit(code, ranks=1, name=name)
    server.move(job, *PATH, devices=["cpu:0"])
    assert samples(server)["rekindle_job_info", job["id"], name] == 1


def test_openmetrics_is_given_to_who_asks_for_it(server: ApiServer) -> None:
    answer = server.api.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def failed_attempt(number: int) -> AttemptInfo:
    outcome = Outcome(OutcomeClass.SIGNAL, "Rank 0 was killed by SIGKILL.")
    return AttemptInfo(number, run=1, started_at=1.0, ended_at=2.0, outcome=outcome)
