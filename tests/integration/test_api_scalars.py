"""Scalars that the keeper has copied from event files are metrics of the job everywhere."""

import json
import time
from pathlib import Path
from typing import Any

from api_server import ADMIN, ApiServer
from event_files import EventFile
from job_records import record_attempt
from rekindle.contract.states import JobState
from rekindle.keeper.observers.tensorboard import TensorBoardImport
from rekindle_service.api.routes.event_routes import make_feed
from rekindle_service.run_readers.metric_series import read_run_series


def attempt(server: ApiServer, job: dict[str, Any], number: int) -> TensorBoardImport:
    run_dir = server.run_dir(job)
    return TensorBoardImport(record_attempt(run_dir, number).scalars, (run_dir.code,))


def test_replayed_steps_are_shown_for_each_attempt_and_live(server: ApiServer, code: Path) -> None:
    job = server.submit(code)
    server.move(job, JobState.STARTING, JobState.RUNNING)
    run_dir, feed = server.run_dir(job), make_feed(server.state, ADMIN, job=[job["id"]])
    for number, steps in ((1, (1, 2, 3)), (2, (3, 4))):
        log = attempt(server, job, number)
        feed.poll()
        file = EventFile(run_dir.code / "logs" / f"version_{number}", time.time())
        for step in steps:
            file.add(step, loss=step / 8 + number)
        log.finish([])
        polled = [json.loads(event.raw_data or "") for event in feed.poll() if event.event == "metrics"]
        assert [(each["attempt"], [point["step"] for point in each["points"]]) for each in polled] == [
            (number, list(steps))
        ]
    items = server.api.get(f"/api/v1/jobs/{job['id']}/metrics", params={"name": "loss"}).json()["items"]
    shown = {item["attempt"]: [(point[0], point[3]) for point in item["points"]] for item in items}
    assert shown == {1: [(1, 1.125), (2, 1.25), (3, 1.375)], 2: [(3, 2.375), (4, 2.5)]}
    assert [point.value for point in read_run_series(run_dir)["loss"]] == [1.125, 1.25, 2.375, 2.5]
    (name,) = server.api.get(f"/api/v1/jobs/{job['id']}/metrics/names").json()["items"]
    assert name == {"name": "loss", "step": 4, "epoch": None, "value": 2.5, "goal": "min", "printed": None}


def test_a_file_of_nonsense_in_the_place_of_the_copy_is_no_metric(server: ApiServer, code: Path) -> None:
    job = server.submit(code)
    attempt(server, job, 1)
    scalars = server.run_dir(job).attempt(1).scalars
    scalars.write_bytes(
        b'\xff{"step":\n[]\n{"step": 1, "epoch": null, "at": 1e999, "values": {"loss": 1}}\n' + b"x" * 100_000
    )
    assert server.api.get(f"/api/v1/jobs/{job['id']}/metrics").json()["items"] == []
    scalars.unlink()
    scalars.symlink_to("/etc/passwd")
    assert server.api.get(f"/api/v1/jobs/{job['id']}/metrics").json()["items"] == []
