"""A server whose rows are in PostgreSQL: its home changes over, jobs run on, PostgreSQL and the server restart."""

from pathlib import Path

import pytest

from e2e.serve_process import ServeProcess
from e2e.waiting import until
from postgres_cluster import needs_postgres, postgres_cluster
from rest_api import RestApi


@needs_postgres
def test_a_home_changes_over_to_postgresql_and_its_jobs_run_on(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(
        f"import pathlib, time\nwhile not pathlib.Path({str(tmp_path / 'go')!r}).exists():\n    time.sleep(0.05)\n"
    )
    body = {"script": "train.py", "code": {"path": str(tmp_path)}, "device": "cpu", "exclude": ["home"]}
    with postgres_cluster() as cluster, ServeProcess(home) as server:
        api = RestApi(server)
        job_id = api.post("/jobs", body)["id"]
        until(lambda: api.get(f"/jobs/{job_id}")["state"] == "running", "the job runs", 120)
        server.stop()
        monkeypatch.setenv("REKINDLE_DATABASE", cluster.url(cluster.create_database()))
        server.start()
        assert (home / "rekindle.db.moved").exists()
        assert not (home / "rekindle.db").exists()
        assert api.get(f"/jobs/{job_id}")["state"] == "running"
        cluster.stop()
        refused = api.request("GET", f"/jobs/{job_id}")
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        cluster.start()
        (tmp_path / "go").touch()
        until(lambda: api.get(f"/jobs/{job_id}")["state"] == "succeeded", "the job has ended", 120)
        server.stop()
        server.start()
        job = api.get(f"/jobs/{job_id}")
        assert (job["state"], job["attempt"]) == ("succeeded", 1)
