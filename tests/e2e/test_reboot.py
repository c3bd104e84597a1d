"""The machine goes down under its jobs, and comes back."""

import os
import uuid
from pathlib import Path

import pytest

from e2e.serve_process import ServeProcess
from e2e.served_job import ServedJob
from e2e.waiting import until
from rekindle.contract.run_dir.journal import RecordType
from rekindle_service.client import Client

_BODY = {
    "recipe": "ddp",
    "args": ["--epochs", "4", "--throttle", "0.05"],
    "ranks": 2,
    "device": "cpu",
    "snapshot": {"every_steps": 5},
}


@pytest.mark.skipif(os.geteuid() != 0, reason="another boot id needs a mount namespace: root")
def test_jobs_of_a_machine_that_went_down_come_back_by_themselves(
    server: ServeProcess, client: Client, home: Path, tmp_path: Path
) -> None:
    job = ServedJob(client, home, _BODY)
    job.reach(beyond=job.reach_snapshot())
    server.kill()
    job.kill_keeper()
    until(lambda: not job.processes(), "nothing of the job is left", 5)
    boot_id = tmp_path / "boot_id"
    boot_id.write_text(f"{uuid.uuid4()}\n")
    server.start(boot_id)
    assert job.finish() == "succeeded"
    first, *_, last = client.attempts(job.id)
    assert first["outcome"]["class"] == "host_lost"
    assert first["outcome"]["message"] == "The machine went down under the job."
    assert last["resumed_from_step"] > 0
    assert [record.state for record in job.records(RecordType.JOB_ENDED)] == ["succeeded"]
