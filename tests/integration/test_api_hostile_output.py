"""What scripts may print and log, at its worst: the service answers, in bounded chunks, and shows nothing but text."""

import json
from pathlib import Path
from typing import Any

import pytest

from api_server import ADMIN, ApiServer
from job_records import record_attempt
from rekindle.contract.run_dir.paths import RankDir
from rekindle.contract.states import JobState
from rekindle_service.api.routes.event_routes import Feed, make_feed
from shared_server import one_server  # noqa: F401 the fixture server

_LONG = 10_000_000  # bytes of a line
_MOST_EVENT = 512 * 1024  # bytes


@pytest.fixture
def job(server: ApiServer, code: Path) -> dict[str, Any]:
    job = server.submit(code, ranks=1)
    record_attempt(server.run_dir(job))
    server.move(job, JobState.STARTING, JobState.RUNNING, attempt=1)
    return job


@pytest.fixture
def rank(server: ApiServer, job: dict[str, Any]) -> RankDir:
    return server.run_dir(job).attempt(1).rank(0)


def polled(feed: Feed, kind: str) -> list[dict[str, Any]]:
    """The data of the next poll's events of a kind, each of bounded size."""
    events = [event.raw_data or "" for event in feed.poll() if event.event == kind]
    assert all(len(data) <= _MOST_EVENT for data in events)
    return [json.loads(data) for data in events]


def test_a_line_of_ten_megabytes_comes_in_chunks(server: ApiServer, job: dict[str, Any], rank: RankDir) -> None:
    feed = make_feed(server.state, ADMIN, job=[job["id"]], log=["0:stdout"])
    feed.poll()
    rank.log("stdout").write_bytes(b"x" * _LONG + b"\nthe end\n")
    url = f"/api/v1/jobs/{job['id']}/ranks"
    assert server.api.get(f"{url}/0/log?tail=1").text == "the end\n"
    assert len(server.api.get(f"{url}/0/log?tail=2").content) == 64 * 1024
    assert len(server.api.get(f"{url}/0/log?tail=2&limit={1 << 20}").content) == 1 << 20
    assert server.api.get(url).json()["items"][0]["last_line"] == "the end"
    got = ""
    while len(got) < _LONG:
        (piece,) = polled(feed, "log")
        got += piece["text"]
    assert got == "x" * _LONG + "\nthe end\n"
    rank.log("stdout").write_bytes(b"y" * _LONG)
    assert server.api.get(url).json()["items"][0]["last_line"] == "y" * 200


def test_bytes_that_are_no_text_come_as_text(server: ApiServer, job: dict[str, Any], rank: RankDir) -> None:
    feed = make_feed(server.state, ADMIN, job=[job["id"]], log=["0:stderr"])
    feed.poll()
    garbage = b"\xff\xfe\x00\xed\xa0\x80 \x1b]0;owned\x07\xc3" + b"<script>alert(1)</script>\n"
    rank.log("stderr").write_bytes(garbage)
    answer = server.api.get(f"/api/v1/jobs/{job['id']}/ranks/0/log?stream=stderr")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert (len(answer.content), int(answer.headers["x-next-offset"])) == (len(garbage), len(garbage))
    assert polled(feed, "log")[0]["text"] == answer.text
    (row,) = server.api.get(f"/api/v1/jobs/{job['id']}/ranks").json()["items"]
    assert row["last_line"].isprintable()


def test_metrics_that_are_not_finite_are_null(server: ApiServer, job: dict[str, Any], rank: RankDir) -> None:
    feed = make_feed(server.state, ADMIN, job=[job["id"]])
    feed.poll()
    values = '"nan": NaN, "inf": Infinity, "minus": -Infinity, "huge": 1e308, "beyond": 1e999, "tiny": 5e-324'
    rank.metrics.write_text(f'{{"step": 1, "epoch": 0, "at": 1.0, "values": {{{values}}}}}\n')
    series = server.api.get(f"/api/v1/jobs/{job['id']}/metrics").json()["items"]
    shown = {each["name"]: each["points"][0][3] for each in series}
    assert shown == {"nan": None, "inf": None, "minus": None, "huge": 1e308, "beyond": None, "tiny": 5e-324}
    assert polled(feed, "metrics")[0]["points"][0]["values"] == shown


def test_metric_names_by_the_thousand_cost_no_more_than_a_few(
    server: ApiServer, job: dict[str, Any], rank: RankDir
) -> None:
    feed = make_feed(server.state, ADMIN, job=[job["id"]])
    feed.poll()
    with rank.metrics.open("w") as file:
        for step in range(50):
            values = {f"{step}/{'n' * 20}/{number}": 1.0 for number in range(1000)}
            file.write(json.dumps({"step": step, "epoch": 0, "at": 1.0, "values": values}) + "\n")
    answer = server.api.get(f"/api/v1/jobs/{job['id']}/metrics")
    assert len(answer.json()["items"]) == 200
    assert len(answer.content) < 100_000
    steps: list[int] = []
    while len(steps) < 50:
        (data,) = polled(feed, "metrics")
        steps += [point["step"] for point in data["points"]]
    assert steps == list(range(50))


def test_a_name_and_a_line_without_end_are_cut_off(server: ApiServer, job: dict[str, Any], rank: RankDir) -> None:
    long_name = {"step": 1, "epoch": 0, "at": 1.0, "values": {"n" * 10_000: 1.0}}
    endless = {"step": 2, "epoch": 0, "at": 1.0, "values": {"x" * _LONG: 1.0}}
    after = {"step": 3, "epoch": 0, "at": 1.0, "values": {"loss": 1.0}}
    rank.metrics.write_text("".join(json.dumps(line) + "\n" for line in (long_name, endless, after)))
    series = server.api.get(f"/api/v1/jobs/{job['id']}/metrics").json()["items"]
    assert [each["name"] for each in series] == ["n" * 200, "loss"]
