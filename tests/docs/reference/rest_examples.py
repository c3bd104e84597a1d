"""One request of each route, as the page of the REST API shows it."""

import json
from collections.abc import Iterable
from typing import Any

PATH_VALUES = {
    "job_id": "k3v9x2m1qa",
    "experiment_id": "p7d2k9w4ze",
    "token_id": "b8f3n1c6yr",
    "name": "cuda:3",
    "other": "m4t8h2s5va",
    "rank": "1",
    "step": "400",
}

QUERY_VALUES = {"path": "epoch_3.pt", "ref": "digits", "q": "Traceback", "other": "m4t8h2s5va"}
"""Of parameters that a route requires."""

QUERIES = {
    "GET /api/v1/jobs": "state=running&limit=20",
    "GET /api/v1/jobs/{job_id}/ranks/{rank}/log": "stream=stderr&tail=100",
    "GET /api/v1/jobs/{job_id}/metrics": "name=loss",
    "GET /api/v1/jobs/{job_id}/digests": "after=1200&limit=100",
    "GET /api/v1/jobs/{job_id}/diff/{other}": "other_attempt=2",
    "GET /api/v1/events": "job=k3v9x2m1qa&log=0:stdout",
}
"""Of routes that require none."""

_JOB = {"script": "train.py", "code": {"path": "/home/ann/digits"}, "ranks": 2, "args": ["--lr", "0.1"]}

BODIES: dict[str, dict[str, Any]] = {
    "POST /api/v1/jobs": _JOB,
    "POST /api/v1/jobs/validate": _JOB,
    "PATCH /api/v1/jobs/{job_id}": {"name": "digits, lr 0.1", "priority": 10},
    "POST /api/v1/jobs/{job_id}/replay": {"step": 41200, "until": 41300},
    "POST /api/v1/jobs/{job_id}/resume": {"snapshot": 400},
    "POST /api/v1/jobs/{job_id}/chaos": {"fault": "kill", "rank": 1},
    "POST /api/v1/experiments": {
        "name": "rates",
        "base": {"recipe": "ddp", "ranks": 2},
        "matrix": {"--lr": [0.1, 0.01]},
    },
    "POST /api/v1/devices/{name}/disable": {"reason": "ECC errors"},
    "POST /api/v1/disk/prune": {"dry_run": True},
    "POST /api/v1/tokens": {"person": "anna", "scope": "submit"},
}


def request(name: str, required: Iterable[str] = ()) -> str:
    """The request line of the route that is ``METHOD /path``, with its body in the second line.

    ``required``: its query parameters that must be given. Raises KeyError for a parameter that has no value here.
    """
    method, _, path = name.partition(" ")
    query = QUERIES.get(name) or "&".join(f"{each}={QUERY_VALUES[each]}" for each in required)
    line = f"{method} {path.format(**PATH_VALUES)}{'?' if query else ''}{query}"
    return f"{line}\n{json.dumps(BODIES[name])}" if name in BODIES else line
