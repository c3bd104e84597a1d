"""An array with real keepers: each job finds its index, and no more of them run at once than was asked for."""

import json
from pathlib import Path

from e2e.waiting import until
from rekindle_service.client import Client

_SCRIPT = """
import json, os, pathlib, sys
found = [os.environ["REKINDLE_ARRAY_INDEX"], sys.argv[1:]]
pathlib.Path(f"found-{os.environ['RANK']}.json").write_text(json.dumps(found))
"""


def test_the_jobs_of_an_array_find_their_index_and_run_two_at_a_time(
    client: Client, home: Path, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text(_SCRIPT)
    base = {"script": "train.py", "code": {"path": str(code)}, "device": "cpu", "args": ["--part={index}"]}
    array = client.submit_experiment({"name": "sweep", "array": "3-7:2%2", "base": base})
    jobs = [trial["job"] for trial in array["trials"]]
    until(lambda: all(client.job(job)["state"] == "succeeded" for job in jobs), "all have succeeded", 240)
    found = [json.loads((home / "runs" / job / "code" / "found-0.json").read_text()) for job in jobs]
    assert found == [[str(index), [f"--part={index}"]] for index in (3, 5, 7)]
    attempts = [client.attempts(job) for job in jobs]
    times = [(only["started_at"], only["ended_at"]) for (only,) in attempts]
    assert max(sum(began <= at < ended for began, ended in times) for at, _ in times) <= 2
