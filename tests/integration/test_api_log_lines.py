"""Lines of all ranks in the order in which they came, over HTTP, on a job whose logs the test writes."""

import json
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from job_records import record_attempt
from rekindle.contract.run_dir.attempt_samples import LogName, LogSizes
from shared_server import one_server  # noqa: F401 the fixture server

LINES = [
    (1, "stdout", "step 1"),
    (0, "stdout", "step 1"),
    (0, "stderr", "WARNING: lr is high"),
    (1, "stderr", "ValueError: boom"),
    (0, "stdout", "step 2"),
]


@pytest.fixture
def job(server: ApiServer, code: Path) -> dict[str, Any]:
    job = server.submit(code, ranks=2)
    directory = record_attempt(server.run_dir(job), world_size=2)
    sizes: dict[LogName, int] = {}
    for number, (rank, stream, text) in enumerate(LINES):
        path = directory.rank(rank).log(stream)
        with path.open("a") as file:
            file.write(f"{text}\n")
        sizes[LogName(rank, stream)] = path.stat().st_size
        with directory.log_times.open("a") as file:
            file.write(json.dumps(LogSizes(1000.0 + number, sizes).to_json()) + "\n")
    return job


def read(server: ApiServer, job: dict[str, Any], **query: Any) -> Any:
    return server.api.get(f"/api/v1/jobs/{job['id']}/log", params=query)


def shown(answer: Any) -> list[tuple[int, str, str]]:
    return [(line["rank"], line["stream"], line["text"]) for line in answer.json()["items"]]


def test_pages_lead_through_all_logs_in_order(server: ApiServer, job: dict[str, Any]) -> None:
    first = read(server, job, limit=2)
    assert shown(first) == LINES[:2]
    assert first.json()["items"][0] == {
        "rank": 1, "stream": "stdout", "offset": 0, "end": 7, "at": 1000.0, "level": "info", "text": "step 1",
        "removed": 0,
    }  # fmt: skip
    assert {name: first.json()[name] for name in ("attempt", "complete", "has_times", "unfinished")} == {
        "attempt": 1, "complete": False, "has_times": True, "unfinished": [],
    }  # fmt: skip
    rest = read(server, job, after=first.json()["next"])
    assert shown(rest) == LINES[2:]
    assert rest.json()["complete"]
    assert shown(read(server, job, before=rest.json()["previous"])) == LINES[:2]
    assert shown(read(server, job, before="end", limit=1)) == LINES[-1:]
    assert shown(read(server, job, at=1002.5)) == LINES[3:]
    assert shown(read(server, job, after=rest.json()["next"])) == []


def test_a_line_without_its_end_is_shown_apart(server: ApiServer, job: dict[str, Any]) -> None:
    with server.run_dir(job).attempt(1).rank(1).log("stderr").open("a") as file:
        file.write("\r 10%|#   |\r 20%|##  |")
    last = read(server, job, before="end").json()["unfinished"]
    assert [(line["rank"], line["stream"], line["text"]) for line in last] == [(1, "stderr", " 20%|##  |")]


def test_lines_are_chosen_by_rank_stream_level_and_text(server: ApiServer, job: dict[str, Any]) -> None:
    assert shown(read(server, job, rank=[0], stream="stdout")) == [LINES[1], LINES[4]]
    assert shown(read(server, job, rank=[0, 1, 17], level="warning")) == LINES[2:4]
    missing = read(server, job, rank=[7])
    assert (missing.status_code, missing.json()["type"]) == (404, "/problems/unknown-rank")
    assert "has no rank 7; it has ranks 0" in missing.json()["detail"]
    assert shown(read(server, job, level="error")) == [LINES[3]]
    assert shown(read(server, job, q="BOOM")) == []
    assert shown(read(server, job, q="lr is")) == [LINES[2]]
    assert shown(read(server, job, q="step", before="end", limit=1)) == [LINES[4]]


def test_lines_are_found_by_regular_expressions(server: ApiServer, job: dict[str, Any]) -> None:
    assert shown(read(server, job, q=r"step \d$", regex=True, rank=[0])) == [LINES[1], LINES[4]]
    assert shown(read(server, job, q=r"^\w*Error: ", regex=True)) == [LINES[3]]
    refused = read(server, job, q="(a", regex=True)
    assert (refused.status_code, "missing ): (a; the syntax is that of RE2" in refused.text) == (422, True)
    search = f"/api/v1/jobs/{job['id']}/ranks/0/log/search"
    for backwards, offsets in ((False, [0, 7]), (True, [7, 0])):
        query = {"q": "^step", "regex": True, "backwards": backwards, "limit": 1}
        found = server.api.get(search, params=query).json()
        rest = server.api.get(search, params={**query, "from": found["next"]}).json()
        assert [match["offset"] for match in found["items"] + rest["items"]] == offsets


def test_times_of_one_log_come_by_offset(server: ApiServer, job: dict[str, Any]) -> None:
    url = f"/api/v1/jobs/{job['id']}/ranks/0/log/times"
    assert server.api.get(url).json()["items"] == [[7, 1001.0], [14, 1004.0]]
    assert server.api.get(url, params={"from": 7}).json()["items"] == [[14, 1004.0]]
    assert server.api.get(url, params={"to": 7}).json()["items"] == [[7, 1001.0]]


def test_what_is_no_position_is_rejected(server: ApiServer, job: dict[str, Any]) -> None:
    for query in ({"after": "nonsense"}, {"before": "0-stdout-1"}, {"after": "0-stdout-1-2", "at": 3}):
        answer = read(server, job, **query)
        assert answer.status_code == 422, answer.text
    assert "must be `next` or `previous`" in read(server, job, after="nonsense").text
    assert shown(read(server, job, after="1-stdout-900-900")) == []
    assert shown(read(server, job, after="3000-stdout-0-0")) == []
