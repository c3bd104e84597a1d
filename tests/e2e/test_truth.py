"""What went wrong is in the API at once, in the words of the exception that began it."""

import time
from pathlib import Path

from e2e.served_job import ServedJob
from e2e.waiting import until
from rekindle.contract.files import read_json
from rekindle_service.client import Client

_SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(100):
    if dist.get_rank() == 1 and step == 20:
        raise KeyError("the own words of rank 1")
    dist.all_reduce(torch.ones(1))
"""


def test_the_first_exception_is_reported_at_once_and_no_rank_that_it_took_along(
    client: Client, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text(_SCRIPT)
    body = {"script": "train.py", "code": {"path": str(tmp_path / "code")}, "ranks": 2, "device": "cpu"}
    job = ServedJob(client, home, body)
    error = job.run_dir.attempt(1).rank(1).error
    until(lambda: read_json(error), "rank 1 has left its exception", 60)
    left_at = time.monotonic()
    outcome = until(lambda: client.attempts(job.id)[0]["outcome"], "the API reports how attempt 1 ended")
    print(f"in the API {time.monotonic() - left_at:.2f} s after the rank has left its exception")
    reported = {key: outcome[key] for key in ("class", "rank", "exception", "message", "file", "line")}
    assert reported == {
        "class": "user_error",
        "rank": 1,
        "exception": "KeyError",
        "message": "Rank 1 raised KeyError at train.py:6: 'the own words of rank 1'",
        "file": "train.py",
        "line": 6,
    }
    assert job.finish() == "failed"
