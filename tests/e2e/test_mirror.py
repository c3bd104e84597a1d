"""A job continues on another machine from its copies off the box, bit by bit."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cli_process import rekindle
from e2e.serve_process import ServeProcess
from e2e.served_job import ServedJob
from e2e.waiting import until
from rekindle_service.client import Client
from rekindle_service.config.settings import Settings

_BODY = {
    "recipe": "ddp",
    "args": ["--epochs", "2", "--throttle", "0.1"],
    "ranks": 2,
    "device": "cpu",
    "snapshot": {"every_steps": 5},
}


@contextmanager
def machine(home: Path, slots: int = 4) -> Iterator[tuple[ServeProcess, Client]]:
    home.mkdir(mode=0o700)
    with ServeProcess(home, slots) as server, Client.from_home(Settings(home=home)) as client:
        yield server, client


def test_a_job_whose_machine_is_lost_continues_on_another_one_bit_by_bit(tmp_path: Path) -> None:
    place = tmp_path / "off"
    place.mkdir()
    required = {"mirror": str(place), "require_mirror": True}
    with machine(tmp_path / "one") as (server, client):
        whole = ServedJob(client, server.home, {**_BODY, "args": ["--epochs", "2"], **required})
        assert whole.finish() == "succeeded"
        weights = whole.weights()
        steps = [each["step"] for each in client.snapshots(whole.id)["items"] if each["mirrored"]]
        assert client.job(whole.id)["snapshot_step"] in steps, "success needs the copy of the last snapshot"
        lost = ServedJob(client, server.home, {**_BODY, "mirror": str(place), "env": {"SECRET": "1"}})
        until(lambda: any(each["mirrored"] for each in client.snapshots(lost.id)["items"]), "a snapshot is copied", 180)
        server.kill()
        lost.kill_keeper()
        until(lambda: not lost.processes(), "the machine is down")
        shutil.rmtree(server.home / "runs")
    with machine(tmp_path / "other") as (server, client):
        listed = rekindle(server.home, "import", str(place))
        assert whole.id in listed.stdout
        assert lost.id in listed.stdout
        refused = rekindle(server.home, "import", f"{place}/{lost.id}")
        assert "pass --env for SECRET" in refused.stderr
        done = rekindle(server.home, "import", f"{place}/{lost.id}", "--env", "SECRET=1", "-o", "id")
        assert done.returncode == 0, done.stderr
        job = ServedJob(client, server.home, _BODY, done.stdout.strip())
        assert job.finish() == "succeeded"
        assert client.attempts(job.id)[0]["resumed_from_step"] > 0
        assert job.weights() == weights


def test_a_job_that_requires_its_copies_waits_without_slots_over_a_restart_until_it_has_them_or_is_cancelled(
    tmp_path: Path,
) -> None:
    place = tmp_path / "off"
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("print('trained')")
    body = {"script": "train.py", "code": {"path": str(tmp_path / "code")}, "device": "cpu"}
    with machine(tmp_path / "home", slots=1) as (server, client):
        jobs = [client.submit({**body, "mirror": str(place), "require_mirror": True})["id"] for _ in range(2)]
        for job in jobs:
            until(lambda: "is no directory" in (client.job(job)["waiting_for"] or ""), "it waits", 60)  # noqa: B023
            assert (client.job(job)["state"], client.job(job)["devices"]) == ("running", [])
            assert "Nothing is mirrored" in rekindle(server.home, "show", job).stdout
            assert "mirror_failed" in [each["kind"] for each in client.job_events(job)]
        server.kill()
        server.start()
        client.cancel(jobs[0])
        assert client.wait(jobs[0])["state"] == "cancelled"
        assert client.job(jobs[1])["state"] == "running"
        place.mkdir()
        assert client.wait(jobs[1])["state"] == "succeeded"
        assert client.job(jobs[1])["notice"] is None
        client.resume(jobs[0])
        assert client.wait(jobs[0])["state"] == "succeeded", "it trains once more"
        plain = client.submit(body)["id"]
        assert client.wait(plain)["state"] == "succeeded"
