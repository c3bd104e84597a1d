"""GET /queue: positions, reasons, estimates, the timeline of the slots, and what each owner has used."""

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from api_server import ApiServer, api_server
from rekindle.contract.run_dir.attempt_history import AttemptInfo
from rekindle.contract.states import JobState
from rekindle_service.config.settings import Quota
from rekindle_service.jobs.quotas import Quotas
from rekindle_service.store.projection import RowChanges
from rekindle_service.store.queue_store import Shown

HOUR = 3600.0


def place(server: ApiServer, job: dict[str, Any], *shown: Any) -> None:
    """What the scheduler writes."""
    server.state.store.queue.show({job["id"]: Shown(*shown)})


def read(server: ApiServer, **query: Any) -> dict[str, Any]:
    answer = server.api.get("/api/v1/queue", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def bearer(server: ApiServer, person: str) -> str:
    answer = server.api.post("/api/v1/tokens", json={"person": person, "scope": "submit"})
    assert answer.status_code == 201, answer.text
    return f"Bearer {answer.json()['token']}"


def owned(server: ApiServer, code: Path, owner: str, **fields: Any) -> dict[str, Any]:
    own = server.api.headers["Authorization"]
    server.api.headers["Authorization"] = bearer(server, owner)
    try:
        return server.submit(code, **fields)
    finally:
        server.api.headers["Authorization"] = own


def test_the_next_job_comes_first_and_what_waits_for_something_else_last(server: ApiServer, tmp_path: Path) -> None:
    held, second, first, blocked = (
        server.submit(tmp_path, name=name) for name in ("held", "second", "first", "blocked")
    )
    at = time.time() + HOUR
    place(server, first, 1, "2 CPU slots, 1 free, until #9 ends", at)
    place(server, second, 2, "2 CPU slots, 1 free, after #3")
    place(server, blocked, None, "job abc to succeed")
    assert server.api.post(f"/api/v1/jobs/{held['id']}/drain").status_code == 202
    found = read(server)
    assert [each["name"] for each in found["items"]] == ["first", "second", "held", "blocked"]
    assert [each["position"] for each in found["items"]] == [1, 2, None, None]
    assert found["items"][0]["estimated_start_at"] is not None
    assert found["items"][1]["estimated_start_at"] is None
    assert found["items"][2]["intent"] == "hold"
    assert (found["queued"], found["next"]) == (4, None)


def test_a_page_ends_where_the_next_begins(server: ApiServer, tmp_path: Path) -> None:
    jobs = [server.submit(tmp_path, name=f"job-{index}") for index in range(5)]
    for position, job in enumerate(jobs[:3], start=1):
        place(server, job, position, "2 CPU slots, 1 free")
    names, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = read(server, limit=2, **({} if cursor is None else {"cursor": cursor}))
        names += [each["name"] for each in page["items"]]
        cursor, pages = page["next"], pages + 1
    assert names == [f"job-{index}" for index in range(5)]
    assert pages == 3


def test_owners_are_shown_with_what_they_have_used_and_may_use(server: ApiServer, tmp_path: Path) -> None:
    store = server.state.store
    object.__setattr__(server.state, "quotas", Quotas({"ann": Quota(slots=4, queued=10)}))
    ann, _ = owned(server, tmp_path, "ann", name="a", ranks=2), owned(server, tmp_path, "bob", name="b")
    server.move(ann, JobState.STARTING, devices=["cpu:0", "cpu:1"])
    store.queue.set_usage({"ann": 3000 * HOUR, "bob": 1000 * HOUR}, time.time())  # what ann uses meanwhile is little
    found = read(server, owner="bob")
    assert [each["owner"] for each in found["items"]] == ["bob"]
    bob, ann = found["owners"]
    assert (bob["owner"], bob["share"], bob["slots"], bob["queued"], bob["max_slots"]) == ("bob", 0.25, 0, 1, None)
    assert (ann["owner"], ann["slots"], ann["running"], ann["queued"]) == ("ann", 2, 1, 0)
    assert (ann["max_slots"], ann["max_queued"]) == (4, 10)
    assert ann["slot_seconds"] == pytest.approx(3000 * HOUR, abs=120)


def test_what_was_used_a_half_life_ago_counts_half(server: ApiServer) -> None:
    server.state.store.queue.set_usage({"ann": HOUR}, time.time() - server.state.fair_share_days * 24 * HOUR)
    [ann] = read(server)["owners"]
    assert ann["slot_seconds"] == pytest.approx(HOUR / 2, abs=1)


def test_where_jobs_are_private_nobody_sees_the_queue_of_others(tmp_path: Path) -> None:
    with api_server(tmp_path, private_jobs=True) as server:
        owned(server, tmp_path, "ann", name="a")
        owned(server, tmp_path, "bob", name="b")
        found = server.stranger.get("/api/v1/queue", headers={"Authorization": bearer(server, "bob")}).json()
        assert [each["name"] for each in found["items"]] == ["b"]
        assert [each["owner"] for each in found["owners"]] == ["bob"]
        assert found["queued"] == 1
        assert read(server)["queued"] == 2


# --- the timeline of the slots


def attempted(server: ApiServer, job: dict[str, Any], *times: tuple[float, float | None], run: int = 1) -> None:
    """Attempts on the job's slots, each with its begin and end in seconds from now."""
    row, now = server.state.store.job(job["id"]), time.time()
    assert row is not None
    attempts = {
        number: AttemptInfo(
            number, run=run, started_at=now + begin, ended_at=None if end is None else now + end, devices=["cpu:0"]
        )
        for number, (begin, end) in enumerate(times, start=1)
    }
    server.state.store.apply_journal(row, RowChanges(0, attempts=attempts))


def timeline(server: ApiServer, client: Any = None, **query: Any) -> list[tuple[Any, ...]]:
    """Name, slots, and the hours from now until it begins and ends."""
    answer = (client or server.api).get("/api/v1/queue/timeline", **query)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert found["slots"] == ["cpu:0", "cpu:1"]

    def hours(at: str | None) -> float | None:
        return at and round(
            (datetime.fromisoformat(at) - datetime.fromisoformat(found["at"])).total_seconds() / HOUR, 1
        )

    return [
        (each["name"], each["slots"], hours(each["started_at"]), hours(each["ended_at"])) for each in found["items"]
    ]


def test_the_timeline_has_what_held_slots_what_holds_them_and_what_probably_gets_them(
    server: ApiServer, tmp_path: Path
) -> None:
    store, now = server.state.store, time.time()
    old, past, runs, stuck = (server.submit(tmp_path, name=each) for each in ("old", "past", "runs", "stuck"))
    for job, device in ((old, "cpu:0"), (past, "cpu:0"), (runs, "cpu:0"), (stuck, "cpu:1")):
        server.move(job, JobState.STARTING, devices=[device], run=1)
        store.update_progress(job["id"], devices_since=now - HOUR / 2)
    attempted(server, old, (-5 * HOUR, -4 * HOUR))
    attempted(server, past, (-1.5 * HOUR, -1.2 * HOUR), (-1.1 * HOUR, -0.6 * HOUR))  # two attempts of one run
    attempted(server, runs, (-HOUR / 2, None))
    for job in (old, past):
        server.move(job, JobState.FAILED, devices=[])
    store.update_progress(runs["id"], eta_seconds=1800.0)
    server.submit(tmp_path, name="limited", time_limit=int(HOUR / 2))
    server.submit(tmp_path, name="later", ranks=2)
    server.submit(tmp_path, name="held", hold=True)
    assert timeline(server) == [
        ("past", ["cpu:0"], -1.5, -0.6),
        ("runs", ["cpu:0"], -0.5, 0.5),
        ("stuck", ["cpu:1"], -0.5, None),
        ("limited", ["cpu:0"], 0.5, 1.0),
    ]
    store.update_progress(runs["id"], eta_seconds=0.0)
    assert timeline(server)[-1] == ("limited", ["cpu:0"], 0.0, 0.5)
    store.update_progress(runs["id"], eta_seconds=1e300)
    assert timeline(server, params={"hours": 24})[-1][0] == "stuck", "nothing of what begins after the time shown"
    assert server.api.get("/api/v1/queue/timeline", params={"hours": 25}).status_code == 422


def test_the_timeline_does_not_name_jobs_that_must_not_be_read(tmp_path: Path) -> None:
    with api_server(tmp_path, private_jobs=True) as server:
        for owner in ("ann", "bob"):
            job = owned(server, tmp_path, owner, name=f"of {owner}")
            server.move(job, JobState.STARTING, devices=["cpu:0" if owner == "ann" else "cpu:1"])
        seen = timeline(server, server.stranger, headers={"Authorization": bearer(server, "bob")})
        assert sorted(each[:2] for each in seen if each[0]) == [("of bob", ["cpu:1"])]
        assert [each[1] for each in seen if not each[0]] == [["cpu:0"]]
