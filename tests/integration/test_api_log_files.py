"""Search in logs and downloads, on a job whose logs the test writes."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer
from job_records import record_attempt
from shared_server import one_server  # noqa: F401 the fixture server

WriteLog = Callable[..., Path]


@pytest.fixture
def job(server: ApiServer, code: Path) -> dict[str, Any]:
    job = server.submit(code, ranks=2)
    for attempt in (1, 2):
        record_attempt(server.run_dir(job), attempt, world_size=2)
    return job


@pytest.fixture
def write(server: ApiServer, job: dict[str, Any]) -> WriteLog:
    def write_log(data: bytes, rank: int = 0, stream: str = "stdout", attempt: int = 2) -> Path:
        path = server.run_dir(job).attempt(attempt).rank(rank).log(stream)
        path.write_bytes(data)
        return path

    return write_log


def get(server: ApiServer, job: dict[str, Any], path: str, **query: Any) -> Any:
    return server.api.get(f"/api/v1/jobs/{job['id']}/{path}", params=query)


def test_a_log_of_a_gigabyte_is_searched_in_chunks(server: ApiServer, job: dict[str, Any], write: WriteLog) -> None:
    path = write(b"start\n")
    with path.open("r+b") as file:  # sparse, with more holes than a keeper makes: it is read as it is
        for part in range(1, 200):
            file.seek(part << 12 + 1)
            file.write(b".")
        file.seek(1_000_000_000)
        file.write(b"\nRuntimeError: found \xe2\x9c\x93\nend\n")
    offset, calls, items = 0, 0, []
    while not items and offset is not None:
        answer = get(server, job, "ranks/0/log/search", q="runtimeerror: found ✓", **{"from": offset}).json()
        items, offset, calls = answer["items"], answer["next"], calls + 1
    assert items == [{"offset": 1_000_000_001, "line_offset": 1_000_000_001, "text": "RuntimeError: found ✓"}]
    assert calls > 1
    from_the_end = get(server, job, "ranks/0/log/search", q="found", backwards=True).json()
    assert [match["offset"] for match in from_the_end["items"]] == [1_000_000_015]


def test_all_ranks_are_searched_at_once(server: ApiServer, job: dict[str, Any], write: WriteLog) -> None:
    write(b"nothing\n")
    write(b"one hit\nanother hit\n", rank=1, stream="stderr")
    write(b"hit of the first attempt\n", attempt=1)
    assert get(server, job, "logs/search", q="hit", attempt=2).json()["items"] == [
        {
            "attempt": 2,
            "rank": 1,
            "stream": "stderr",
            "count": 2,
            "complete": True,
            "first": {"offset": 4, "line_offset": 0, "text": "one hit"},
        }
    ]
    assert [hit["rank"] for hit in get(server, job, "logs/search", q="hit", attempt=1).json()["items"]] == [0]
    assert get(server, job, "logs/search", q="hit", stream="stdout", attempt=2).json()["items"] == []


def test_all_attempts_are_searched_latest_first_and_counted(
    server: ApiServer, job: dict[str, Any], write: WriteLog
) -> None:
    write(b"an error\nanother error\n", attempt=1)
    write(b"error\n" * 150, rank=1, stream="stderr", attempt=1)
    found = get(server, job, "logs/search", q="error").json()
    assert [(each["attempt"], each["rank"], each["count"]) for each in found["items"]] == [(1, 0, 2), (1, 1, 100)]
    assert found["attempts"] == [
        {"attempt": 2, "count": 0, "complete": True},
        {"attempt": 1, "count": 102, "complete": False},
    ]
    lines = get(server, job, "logs/search", q="^an", regex=True, rank=0, stream="stdout").json()
    assert [(each["attempt"], each["count"]) for each in lines["attempts"]] == [(2, 0), (1, 2)]
    missing = get(server, job, "logs/search", q="error", rank=7)
    assert (missing.status_code, "has no rank 7; it has ranks 0" in missing.json()["detail"]) == (404, True)


def test_attempts_for_which_no_time_is_left_are_listed_as_not_searched(
    server: ApiServer, job: dict[str, Any], write: WriteLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(b"error\n", attempt=1)
    monkeypatch.setattr("rekindle_service.api.routes.log_routes._SEARCH_SECONDS", 0)
    assert get(server, job, "logs/search", q="error").json() == {
        "items": [],
        "next": None,
        "attempts": [{"attempt": number, "count": 0, "complete": False} for number in (2, 1)],
    }


def test_a_senseless_search_is_rejected(server: ApiServer, job: dict[str, Any]) -> None:
    for query in ({}, {"q": ""}, {"q": "x" * 201}, {"q": "x", "from": -1}, {"q": "x", "limit": 0}):
        assert get(server, job, "ranks/0/log/search", **query).status_code == 422, query


def test_a_log_that_is_not_there_yet_has_no_match_and_is_an_empty_file(server: ApiServer, job: dict[str, Any]) -> None:
    assert get(server, job, "ranks/0/log/search", q="x").json() == {"items": [], "next": None, "size": 0}
    assert get(server, job, "ranks/0/log/file").content == b""
    assert get(server, job, "ranks/7/log/search", q="x").status_code == 404


def test_one_log_comes_byte_by_byte(server: ApiServer, job: dict[str, Any], write: WriteLog) -> None:
    data = bytes(range(256)) * 1000
    write(data, rank=1)
    answer = get(server, job, "ranks/1/log/file")
    assert answer.content == data
    name = f"job-{job['number']}-attempt-2-rank-1-stdout.log"
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
    assert answer.headers["content-type"] == "application/octet-stream"


def test_all_logs_come_as_one_archive(server: ApiServer, job: dict[str, Any], write: WriteLog, tmp_path: Path) -> None:
    write(b"first", attempt=1)
    write(b"\xff\x00", rank=1, stream="stderr")
    (tmp_path / "secret").write_text("token")
    server.run_dir(job).attempt(2).rank(1).log("stdout").symlink_to(tmp_path / "secret")
    server.run_dir(job).keeper_log.write_text("kept")

    def unzip(**query: Any) -> dict[str, bytes]:
        with zipfile.ZipFile(io.BytesIO(get(server, job, "logs.zip", **query).content)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}

    logs = {"attempt-1/rank-0/stdout.log": b"first", "attempt-2/rank-1/stderr.log": b"\xff\x00"}
    assert unzip() == {"keeper.log": b"kept", **logs}
    assert unzip(attempt=1) == {"keeper.log": b"kept", "attempt-1/rank-0/stdout.log": b"first"}
    assert get(server, job, "logs.zip", attempt=9).status_code == 404
